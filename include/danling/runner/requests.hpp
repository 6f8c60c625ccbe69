// Requests to a training loop from callbacks, signals and other threads.
#pragma once

#include <atomic>
#include <optional>
#include <string>

namespace danling::inline v0::detail {

/// Handled where an accumulation window ends. Only `stop` may be set from another thread.
struct Requests {
  std::atomic<int> stop{0};          ///< the signal; negative once it is handled
  std::optional<std::string> end;    ///< reason given in this process, not agreed on by all ranks yet
  std::optional<std::string> ended;  ///< reason that all ranks agreed on: training ends before its boundary
  bool evaluation = false;
  bool save = false;
};

}  // namespace danling::inline v0::detail
