// Time and throughput of a loop, from two clock reads per step.
#pragma once

#include <chrono>
#include <cstdint>

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// Counts of a loop; plain numbers, so that ranks can be summed (times and memory: the maximum).
struct LoopCounts {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  /// Seconds of the loop, and the part of them spent waiting for data.
  double seconds = 0.0;
  double data_seconds = 0.0;
  /// MiB of the host that the process occupies, and the most so far; the most of the device, in tensors and reserved.
  double host_mb = 0.0, host_peak_mb = 0.0, device_mb = 0.0, device_reserved_mb = 0.0;

  /// Takes the larger of each number of memory.
  void observe_memory(const LoopCounts& other);
  /// "time" (seconds per step), "data_time", "samples_per_s", "tokens_per_s", "mem_alloc_mb", "mem_reserved_mb",
  /// "mem_host_mb" and "mem_host_peak_mb"; without uncounted ones. Names as in DanLing's LoopTelemetry.merge_result,
  /// with data_time and the host's memory added.
  Result result() const;
};

/// Counters of one loop: in total, and since the last log boundary. A device only queues steps: call `interval()` after
/// the boundary's wait for the device, or it measures only the queueing.
class LoopTelemetry {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts the clock.
  LoopTelemetry() { start(); }
  void start(Clock::time_point now = Clock::now());

  /// Excludes the time since the last step, which was not the loop's.
  void resume(Clock::time_point now = Clock::now()) {
    const auto gap = now - step_start_;
    start_ += gap;
    interval_start_ += gap;
    step_start_ = now;
  }

  /// Call when the batch of the next step is ready. Optional: without it there is no data_time.
  void data_ready(Clock::time_point now = Clock::now()) {
    interval_.data_seconds += std::chrono::duration<double>(now - step_start_).count();
  }

  /// Call after a step; returns the time it read, for Progress::update. 0 tokens or samples: not counted.
  Clock::time_point observe(std::int64_t samples, std::int64_t tokens = 0, Clock::time_point now = Clock::now()) {
    ++interval_.steps;
    return observe_part(samples, tokens, now);
  }
  /// The same after a part of a step that is not its last.
  Clock::time_point observe_part(std::int64_t samples, std::int64_t tokens = 0, Clock::time_point now = Clock::now()) {
    interval_.samples += samples;
    interval_.tokens += tokens;
    step_start_ = now;
    return now;
  }

  /// Returns the counts since the last call (or the start), and begins the next interval.
  LoopCounts interval(Clock::time_point now = Clock::now());
  /// The counts since the start.
  LoopCounts total(Clock::time_point now = Clock::now()) const;
  /// Estimated seconds for `steps` more at the mean speed so far; 0 before the first step.
  double seconds_for(std::int64_t steps, Clock::time_point now = Clock::now()) const;

 private:
  Clock::time_point start_;
  Clock::time_point step_start_;
  Clock::time_point interval_start_;
  LoopCounts interval_;
  LoopCounts past_;
};

}  // namespace danling::inline v0
