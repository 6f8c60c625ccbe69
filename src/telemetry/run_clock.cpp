#include <danling/telemetry/detail/run_clock.hpp>

#include <algorithm>
#include <utility>

namespace danling::inline v0 {
namespace {

double clock_seconds(RunClock::Clock::time_point from, RunClock::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string key_of(const std::string& split, bool trains) { return (trains ? "train " : "evaluate ") + split; }

}  // namespace

void RateEstimator::add(double units, double seconds) {
  recent_units_ += units;
  recent_seconds_ += seconds;
  if (recent_seconds_ >= past_seconds_) {
    past_units_ = past_units_ / 2 + std::exchange(recent_units_, 0.0);
    past_seconds_ = past_seconds_ / 2 + std::exchange(recent_seconds_, 0.0);
  }
}

std::optional<double> RateEstimator::per_unit(double more_units, double more_seconds) const {
  const double units = past_units_ + recent_units_ + more_units;
  if (units <= 0) {
    return std::nullopt;
  }
  return (past_seconds_ + recent_seconds_ + more_seconds) / units;
}

void RunClock::begin(const std::string& split, bool trains, std::int64_t done, std::int64_t total, double place,
                     Clock::time_point now) {
  end(now);
  gap_seconds_ += ended_ ? clock_seconds(*ended_, now) : 0.0;
  if (trains) {
    if (began_at_ && place > *began_at_) {
      gaps_.add(place - *began_at_, gap_seconds_);
    }
    gap_seconds_ = 0.0;
    began_at_ = place;
  }
  pass_ = Pass{key_of(split, trains), trains, done, total, place, now};
}

void RunClock::observe(std::int64_t done, double place, Clock::time_point now) {
  if (!pass_ || done <= pass_->done) {
    return;
  }
  const auto steps = static_cast<double>(done - pass_->done);
  const double seconds = clock_seconds(pass_->time, now);
  passes_[pass_->key].add(steps, seconds);
  if (pass_->trains) {
    batches_.add(steps, seconds);
    training_.add(std::max(place - pass_->place, 0.0), seconds);
  }
  pass_->done = done;
  pass_->place = place;
  pass_->time = now;
}

void RunClock::end(Clock::time_point now) {
  if (!pass_) {
    return;
  }
  if (!pass_->trains) {
    evaluated_[pass_->key] = pass_->total > 0 ? pass_->total : pass_->done;
  }
  pass_.reset();
  ended_ = now;
}

std::optional<double> RunClock::pass_left(std::int64_t done, Clock::time_point now) const {
  if (!pass_ || pass_->total <= 0) {
    return std::nullopt;
  }
  const auto steps = static_cast<double>(std::max<std::int64_t>(done - pass_->done, 0));
  const auto known = passes_.find(pass_->key);
  const RateEstimator pace = known == passes_.end() ? RateEstimator() : known->second;
  const auto per_step = pace.per_unit(steps, steps > 0 ? clock_seconds(pass_->time, now) : 0.0);
  if (!per_step) {
    return std::nullopt;
  }
  return *per_step * static_cast<double>(std::max<std::int64_t>(pass_->total - done, 0));
}

double RunClock::evaluation_seconds(const EvaluationsLeft& evaluation) const {
  const std::string key = key_of(evaluation.split, false);
  const auto length = evaluated_.find(key);
  const auto batches = static_cast<double>(length != evaluated_.end() ? length->second : evaluation.batches);
  const auto known = passes_.find(key);
  if (known != passes_.end()) {
    return batches * known->second.per_unit().value_or(0.0);
  }
  return batches * batches_.per_unit().value_or(0.0) / 3;
}

std::optional<double> RunClock::run_left(double place, double total, const std::vector<EvaluationsLeft>& left,
                                         std::int64_t done, Clock::time_point now) const {
  const bool trains = pass_ && pass_->trains;
  const double units = trains ? std::max(place - pass_->place, 0.0) : 0.0;
  const auto per_unit = training_.per_unit(units, units > 0 ? clock_seconds(pass_->time, now) : 0.0);
  if (!per_unit) {
    return std::nullopt;
  }
  double seconds = (*per_unit + gaps_.per_unit().value_or(0.0)) * std::max(total - place, 0.0);
  for (const EvaluationsLeft& evaluation : left) {
    seconds += static_cast<double>(std::max<std::int64_t>(evaluation.times, 0)) * evaluation_seconds(evaluation);
  }
  if (pass_ && !trains) {
    seconds += pass_left(done, now).value_or(0.0);
  }
  return seconds;
}

}  // namespace danling::inline v0
