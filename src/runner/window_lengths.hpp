// Counts steps and updates of accumulation windows with different lengths over one sequence of micro-batches.
#pragma once

#include <cstdint>
#include <vector>

namespace danling::inline v0::detail {

/// A micro-batch is a step of the run if the window of any model closes; the last of a pass closes all windows.
class WindowLengths {
 public:
  /// @param lengths  window of each trained model, in micro-batches
  explicit WindowLengths(std::vector<std::int64_t> lengths);

  /// Steps in a pass of `micro_batches`.
  std::int64_t steps_in(std::int64_t micro_batches) const;
  /// Updates of the model with windows of `own` in a run of `steps`, whose end closes all windows.
  /// @param passes  micro-batches of each pass, in a cycle; empty if passes have no end
  std::int64_t updates_in(std::int64_t steps, std::int64_t own, const std::vector<std::int64_t>& passes) const;

 private:
  bool closes_any(std::int64_t done) const;
  /// Micro-batches among the first `count` that close a window.
  std::int64_t closing_in(std::int64_t count) const;

  std::vector<std::int64_t> lengths_;  // sorted, without duplicates
  std::int64_t period_ = 1;            // micro-batches after which all windows are closed
};

}  // namespace danling::inline v0::detail
