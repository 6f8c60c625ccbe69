// The time limit of a run.
#pragma once

#include <chrono>
#include <optional>

#include <danling/core/quantity.hpp>

namespace danling::inline v0::detail {

/// Decides when to stop, so that the run is saved within `limit` after the runner's construction. The margin covers the
/// longest time between two checks so far, two saves as long as the last one (one may be in progress), and 1 % of the
/// limit, at most 30 s. For the thread of the loops.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TimeLimit(std::optional<Duration> limit, Clock::time_point start = Clock::now())
      : limit_(limit), start_(start) {}

  bool is_set() const { return limit_.has_value(); }
  /// Returns true when the run must stop now, and from then on. Reads the clock once.
  /// @param save_seconds  duration of the last save; 0 if unknown
  bool is_reached(double save_seconds, Clock::time_point now = Clock::now());
  /// Called when another rank has reached its limit.
  void set_reached() { reached_ = true; }
  bool reached() const { return reached_; }
  std::optional<double> seconds_left(Clock::time_point now = Clock::now()) const;
  /// Returns true once, after half of the limit, if no save was measured yet and one is needed.
  bool needs_measured_save(double save_seconds, Clock::time_point now = Clock::now());
  /// Excludes the time since the last check from the longest time between checks. Called when training begins.
  void restart() { last_check_.reset(); }
  const std::optional<Duration>& limit() const { return limit_; }

 private:
  std::optional<Duration> limit_;
  Clock::time_point start_;
  std::optional<Clock::time_point> last_check_;
  double longest_stretch_ = 0.0;
  bool reached_ = false;
  bool requested_save_ = false;
};

}  // namespace danling::inline v0::detail
