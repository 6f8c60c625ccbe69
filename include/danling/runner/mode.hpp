// Mode of a runner: train, evaluate or infer.
#pragma once

namespace danling::inline v0 {

enum class RunnerMode { train, evaluate, infer };

/// "train", "evaluate" or "infer".
constexpr const char* to_string(RunnerMode mode) {
  switch (mode) {
    case RunnerMode::train:
      return "train";
    case RunnerMode::evaluate:
      return "evaluate";
    case RunnerMode::infer:
      return "infer";
  }
  return "unknown";
}

}  // namespace danling::inline v0
