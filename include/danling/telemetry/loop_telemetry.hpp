// LoopTelemetry: measures time and throughput of a loop with two clock reads per step.
#pragma once

#include <chrono>
#include <cstdint>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// Counts of a loop. Plain numbers, so ranks can be combined: sums of counts, maxima of times and memory.
struct LoopCounts {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  /// Seconds of the loop, and the part that it waited for data.
  double seconds = 0.0;
  double data_seconds = 0.0;
  /// MiB: resident host memory and its peak; peak device memory in tensors, and reserved by the allocator.
  double host_mb = 0.0, host_peak_mb = 0.0, device_mb = 0.0, device_reserved_mb = 0.0;

  /// Raises each number of memory to that of `other` if that is larger.
  void observe_memory(const LoopCounts& other);
  /// Returns "time" (seconds per step), "data_time", "samples_per_s", "tokens_per_s", "mem_alloc_mb",
  /// "mem_reserved_mb", "mem_host_mb" and "mem_host_peak_mb"; omits uncounted numbers. Names as in DanLing's
  /// LoopTelemetry.merge_result, plus data_time and the host memory.
  Result result() const;
};

/// Counts the steps of one loop, in total and since the last log boundary. Steps on a device are asynchronous: call
/// `interval()` after the log boundary has waited for the device, otherwise it measures only the launches.
class LoopTelemetry {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts the clock.
  LoopTelemetry() { start(); }
  void start(Clock::time_point now = Clock::now());

  /// Excludes the time since the last step, such as that of an evaluation in between.
  void resume(Clock::time_point now = Clock::now()) {
    const auto gap = now - step_start_;
    start_ += gap;
    interval_start_ += gap;
    step_start_ = now;
  }

  /// Call when the batch of the next step is ready. Optional; without it data_time is missing.
  void data_ready(Clock::time_point now = Clock::now()) {
    interval_.data_seconds += std::chrono::duration<double>(now - step_start_).count();
  }

  /// Call after a step. Returns the time, for Progress::update. 0 samples or tokens: not counted.
  Clock::time_point observe(std::int64_t samples, std::int64_t tokens = 0, Clock::time_point now = Clock::now()) {
    ++interval_.steps;
    return observe_part(samples, tokens, now);
  }
  /// Call after a part of a step (a micro-batch) except the last.
  Clock::time_point observe_part(std::int64_t samples, std::int64_t tokens = 0, Clock::time_point now = Clock::now()) {
    interval_.samples += samples;
    interval_.tokens += tokens;
    step_start_ = now;
    return now;
  }

  /// Returns the counts since the last call or the start, and begins the next interval.
  LoopCounts interval(Clock::time_point now = Clock::now());
  /// Returns the counts since the start.
  LoopCounts total(Clock::time_point now = Clock::now()) const;
  /// Estimates the seconds for `steps` more steps at the mean speed so far; 0 before the first step.
  double seconds_for(std::int64_t steps, Clock::time_point now = Clock::now()) const;

 private:
  Clock::time_point start_;
  Clock::time_point step_start_;
  Clock::time_point interval_start_;
  LoopCounts interval_;
  LoopCounts past_;
};

}  // namespace danling::inline v0
