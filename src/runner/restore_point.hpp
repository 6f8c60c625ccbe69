// The checkpoint that a run resumes from.
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
  /// The run is finished and has only the model: nothing to do.
  bool finished = false;
  /// Lines of metrics.jsonl at the checkpoint; -1 if nothing was restored.
  std::int64_t lines = -1;
  /// The text of those lines that were not on disk.
  std::string waiting = {};

  bool resumes() const { return !path.empty() && !weights_only; }
};

}  // namespace danling::inline v0::detail
