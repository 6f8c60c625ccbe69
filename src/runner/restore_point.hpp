// What a run goes on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

struct RestorePoint {
  std::filesystem::path path = {};  ///< empty for a fresh start
  State state = {};                 ///< its content, until it is restored
  bool weights_only = false;        ///< `pretrained`
  /// The run ended before, with a checkpoint of the model alone: there is nothing to do.
  bool finished = false;
  /// Lines of metrics.jsonl that the checkpoint counts; -1: nothing was restored.
  std::int64_t lines = -1;
  /// Those of them that waited for room.
  std::string waiting = {};

  bool resumes() const { return !path.empty() && !weights_only; }
};

}  // namespace danling::inline v0::detail
