#include <danling/telemetry/loop_progress.hpp>

#include <algorithm>

namespace danling::inline v0 {

void LoopProgress::enter(std::string_view mode, std::string_view split) {
  const std::lock_guard<std::mutex> lock(mutex_);
  mode_ = mode;
  split_ = split;
}

double LoopProgress::seconds_since_step() const {
  const Clock::duration last(last_.load(std::memory_order_relaxed));
  return std::max(0.0, std::chrono::duration<double>(Clock::now().time_since_epoch() - last).count());
}

LoopProgress::Place LoopProgress::place() const {
  Place out;
  out.counters = {.epoch = epoch_.load(std::memory_order_relaxed),
                  .global_step = global_step_.load(std::memory_order_relaxed),
                  .micro_step = micro_step_.load(std::memory_order_relaxed),
                  .batch = batch_.load(std::memory_order_relaxed)};
  out.phase = phase();
  const std::lock_guard<std::mutex> lock(mutex_);
  out.mode = mode_;
  out.split = split_;
  return out;
}

}  // namespace danling::inline v0
