// First, highest and last rate of a schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <danling/optim/scheduler.hpp>

namespace danling::inline v0::optim {

/// Rates of one parameter group; updates count from 1.
struct ScheduleSummary {
  double first = 0, highest = 0, last = 0;
  std::int64_t highest_at = 1;  ///< the first update with the highest rate
  std::int64_t updates = 0;

  /// "0.001 at first, 0.0958 at most (step 110), 1e-09 at last", with four digits. `step`: the word for an update.
  std::string text(const std::string& step = "step") const;
};

/// A rate with four digits.
std::string format_rate(double lr);

/// For more than 100000 updates, samples that many, evenly spaced, and those around the highest. Null for a schedule
/// that depends on more than the position, fewer than one update or a missing group.
std::optional<ScheduleSummary> summarize_schedule(const Scheduler& schedule, std::int64_t updates,
                                                  std::size_t group = 0);
[[deprecated("use summarize_schedule")]] inline std::optional<ScheduleSummary> outline(const Scheduler& schedule,
                                                                                       std::int64_t updates,
                                                                                       std::size_t group = 0) {
  return summarize_schedule(schedule, updates, group);
}

}  // namespace danling::inline v0::optim
