// Requests to a training loop from callbacks, signals and other threads.
#pragma once

#include <atomic>
#include <optional>
#include <string>

namespace danling::inline v0::detail {

/// Handled at the end of an accumulation window. Only `stop` may be set from another thread.
struct Requests {
  std::atomic<int> stop{0};          ///< the signal; negative once handled
  std::optional<std::string> end;    ///< reason given in this process, before all ranks agree
  std::optional<std::string> ended;  ///< reason that all ranks agreed on: training ends early
  bool evaluation = false;
  bool save = false;
};

}  // namespace danling::inline v0::detail
