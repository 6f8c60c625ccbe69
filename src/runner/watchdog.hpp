// Ends a process whose loop hangs: logs where each rank is and what its threads do.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <danling/distributed/group.hpp>
#include <danling/runner/mode.hpp>
#include <danling/telemetry/logger.hpp>

#include "distributed/rank_notes.hpp"

namespace danling::inline v0::detail {

enum class LoopPhase : int { between, reading, computing, saving };

/// A thread that polls a counter of the loop's steps: micro-batches, evaluation batches and saves. Where none ends
/// within the limit while a loop runs, the process ends with exit_hung. Time in which the process itself does not run
/// (SIGSTOP, a debugger, a suspended machine) does not count.
class Watchdog {
 public:
  struct Options {
    std::chrono::duration<double> limit;
    std::chrono::milliseconds answer_time = std::chrono::seconds(5);  ///< for the places of other ranks
    Logger& logger;
    Group group;
  };

  explicit Watchdog(Options options);
  /// Ends the thread.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Of the thread that runs the loop.
  /// @param log  path of this rank's log; empty without one
  void begin_loop(const std::string& log);
  void end_loop();
  bool runs() const { return runs_.load(std::memory_order_relaxed); }
  void enter(RunnerMode mode, std::string_view split);
  void mark(LoopPhase phase, std::int64_t epoch, std::int64_t step, std::int64_t batch) {
    epoch_.store(epoch, std::memory_order_relaxed);
    step_.store(step, std::memory_order_relaxed);
    batch_.store(batch, std::memory_order_relaxed);
    mark(phase);
  }
  void mark(LoopPhase phase) { phase_.store(phase, std::memory_order_relaxed); }
  LoopPhase phase() const { return phase_.load(std::memory_order_relaxed); }
  void end_step(LoopPhase next = LoopPhase::between) {
    ended_.store(ended_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    mark(next);
  }

 private:
  void watch();
  /// Where the loop is; with `waits`, also what it waits in.
  std::string place(bool waits);
  std::string who() const;
  void write_report(double seconds);
  [[noreturn]] void end_process(double seconds);

  Options options_;
  RankNotes notes_;
  std::atomic<std::int64_t> ended_{0}, epoch_{0}, step_{0}, batch_{0};
  std::atomic<LoopPhase> phase_{LoopPhase::between};
  std::atomic<bool> runs_{false};

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  RunnerMode mode_ = RunnerMode::train;
  std::string split_, log_;
  std::map<std::int64_t, std::string> places_;  ///< of the ranks that answered
  pid_t loop_thread_ = 0;
  std::thread thread_;
};

/// A save, for its lifetime; it counts as a step.
class WatchedSave {
 public:
  explicit WatchedSave(Watchdog* watchdog) : watchdog_(watchdog) {
    if (watchdog_ != nullptr) {
      before_ = watchdog_->phase();
      watchdog_->mark(LoopPhase::saving);
    }
  }
  ~WatchedSave() {
    if (watchdog_ != nullptr) {
      watchdog_->end_step(before_);
    }
  }
  WatchedSave(const WatchedSave&) = delete;
  WatchedSave& operator=(const WatchedSave&) = delete;

 private:
  Watchdog* watchdog_;
  LoopPhase before_ = LoopPhase::between;
};

}  // namespace danling::inline v0::detail
