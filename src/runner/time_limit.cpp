#include <danling/runner/detail/time_limit.hpp>

#include <algorithm>

namespace danling::inline v0::detail {
namespace {

double in_seconds(TimeLimit::Clock::duration span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

bool TimeLimit::is_reached(double save_seconds, Clock::time_point now) {
  if (!limit_ || reached_) {
    return reached_;
  }
  if (last_check_) {
    longest_stretch_ = std::max(longest_stretch_, in_seconds(now - *last_check_));
  }
  last_check_ = now;
  const double margin = longest_stretch_ + 2 * save_seconds + std::min(0.01 * limit_->seconds, 30.0);
  reached_ = in_seconds(now - start_) + margin >= limit_->seconds;
  return reached_;
}

std::optional<double> TimeLimit::seconds_left(Clock::time_point now) const {
  return limit_ ? std::optional(limit_->seconds - in_seconds(now - start_)) : std::nullopt;
}

bool TimeLimit::needs_measured_save(double save_seconds, Clock::time_point now) {
  if (!limit_ || requested_save_ || save_seconds > 0 || in_seconds(now - start_) < 0.5 * limit_->seconds) {
    return false;
  }
  requested_save_ = true;
  return true;
}

}  // namespace danling::inline v0::detail
