// LoopProgress: the position of a loop, written by its thread and read by other threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace danling::inline v0 {

enum class LoopPhase : int { between, reading, computing, saving };

/// Counters of a loop, from 0.
struct LoopCounters {
  std::int64_t epoch = 0;
  std::int64_t global_step = 0;
  std::int64_t micro_step = 0;
  std::int64_t batch = 0;  ///< within the pass
};

/// The position of a loop. Marks are relaxed stores, so the loop never waits for a reader; other threads may read
/// slightly old counters.
class LoopProgress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Place {
    std::string mode, split;
    LoopCounters counters;
    LoopPhase phase = LoopPhase::between;
  };

  // Only for the thread of the loop:

  /// Begins a pass. Takes a lock.
  void enter(std::string_view mode, std::string_view split);
  void mark(LoopPhase phase, const LoopCounters& counters) {
    epoch_.store(counters.epoch, std::memory_order_relaxed);
    global_step_.store(counters.global_step, std::memory_order_relaxed);
    micro_step_.store(counters.micro_step, std::memory_order_relaxed);
    batch_.store(counters.batch, std::memory_order_relaxed);
    mark(phase);
  }
  void mark(LoopPhase phase) { phase_.store(phase, std::memory_order_relaxed); }
  LoopPhase phase() const { return phase_.load(std::memory_order_relaxed); }
  /// Ends a micro-batch, an evaluation batch or a save. Reads the clock.
  void end_step(LoopPhase next = LoopPhase::between) {
    ended_.store(ended_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    last_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    mark(next);
  }

  // For any thread:

  /// Number of end_step() calls.
  std::int64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  /// Seconds since the last end_step() or since construction, by a monotonic clock.
  double seconds_since_step() const;
  Place place() const;

 private:
  std::atomic<std::int64_t> ended_{0}, epoch_{0}, global_step_{0}, micro_step_{0}, batch_{0};
  std::atomic<Clock::rep> last_{Clock::now().time_since_epoch().count()};
  std::atomic<LoopPhase> phase_{LoopPhase::between};
  mutable std::mutex mutex_;
  std::string mode_, split_;
};

}  // namespace danling::inline v0
