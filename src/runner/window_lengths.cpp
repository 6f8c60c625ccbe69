#include <runner/window_lengths.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace danling::inline v0::detail {

WindowLengths::WindowLengths(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {
  std::sort(lengths_.begin(), lengths_.end());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
  for (const std::int64_t length : lengths_) {
    period_ = std::lcm(period_, length);
  }
}

bool WindowLengths::closes_any(std::int64_t done) const {
  return std::any_of(lengths_.begin(), lengths_.end(), [&](std::int64_t length) { return done % length == 0; });
}

std::int64_t WindowLengths::closing_in(std::int64_t count) const {
  const auto among = [this](std::int64_t first) {
    std::int64_t closing = 0;
    for (std::int64_t done = 1; done <= first; ++done) {
      closing += closes_any(done) ? 1 : 0;
    }
    return closing;
  };
  const std::int64_t periods = count / period_;
  return (periods > 0 ? periods * among(period_) : 0) + among(count % period_);
}

std::int64_t WindowLengths::steps_in(std::int64_t micro_batches) const {
  return closing_in(micro_batches) + (micro_batches > 0 && !closes_any(micro_batches) ? 1 : 0);
}

std::int64_t WindowLengths::updates_in(std::int64_t steps, std::int64_t own,
                                       const std::vector<std::int64_t>& passes) const {
  if (lengths_.size() == 1 && lengths_.front() == own) {
    return steps;
  }
  // All windows are closed at the end of the passes or, without an end, after a period; the pattern then repeats.
  std::int64_t steps_of_cycle = 0;
  std::int64_t updates_of_cycle = 0;
  for (const std::int64_t pass : passes) {
    steps_of_cycle += steps_in(pass);
    updates_of_cycle += (pass + own - 1) / own;
  }
  if (passes.empty()) {
    steps_of_cycle = closing_in(period_);
    updates_of_cycle = period_ / own;
  }
  std::int64_t updates = steps / steps_of_cycle * updates_of_cycle;
  const std::int64_t rest = steps % steps_of_cycle;
  std::int64_t done = 0;  // in this pass
  std::size_t pass = 0;
  for (std::int64_t step = 0; step < rest;) {
    ++done;
    const bool last = !passes.empty() && done >= passes[pass];
    const bool counts = last || closes_any(done);
    step += counts ? 1 : 0;
    updates += last || done % own == 0 || (counts && step == rest) ? 1 : 0;
    if (last) {
      done = 0;
      ++pass;
    }
  }
  return updates;
}

}  // namespace danling::inline v0::detail
