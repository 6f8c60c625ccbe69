// Ends a process whose loop hangs, after logging the position of each rank and what its threads do.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <danling/distributed/group.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/loop_progress.hpp>

#include <distributed/rank_notes.hpp>

namespace danling::inline v0::detail {

/// A thread that polls the loop's counter of micro-batches, evaluation batches and saves. If none ends within the limit
/// while a loop runs, the process exits with exit_hung. Time in which the process does not run (SIGSTOP, a debugger, a
/// suspended machine) does not count.
class Watchdog {
 public:
  struct Options {
    std::chrono::duration<double> limit;
    std::chrono::milliseconds answer_time = std::chrono::seconds(5);  ///< for the positions of other ranks
    Logger& logger;
    Group group;
    std::shared_ptr<const LoopProgress> progress;
  };

  explicit Watchdog(Options options);
  /// Ends the thread.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // For the thread that runs the loop.
  /// @param log  path of this rank's log; empty without one
  void begin_loop(const std::string& log);
  void end_loop();
  bool runs() const { return runs_.load(std::memory_order_relaxed); }

 private:
  void watch();
  /// Position of the loop; with `waits`, also the operation that it waits in.
  std::string place(bool waits);
  std::string who() const;
  void write_report(double seconds);
  [[noreturn]] void end_process(double seconds);

  Options options_;
  RankNotes notes_;
  std::atomic<bool> runs_{false};

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::string log_;
  std::map<std::int64_t, std::string> places_;  ///< of the ranks that answered
  pid_t loop_thread_ = 0;
  std::thread thread_;
};

/// Marks a save for its lifetime; the save counts as a step.
class WatchedSave {
 public:
  explicit WatchedSave(LoopProgress& progress) : progress_(progress), before_(progress.phase()) {
    progress_.mark(LoopPhase::saving);
  }
  ~WatchedSave() { progress_.end_step(before_); }
  WatchedSave(const WatchedSave&) = delete;
  WatchedSave& operator=(const WatchedSave&) = delete;

 private:
  LoopProgress& progress_;
  LoopPhase before_;
};

}  // namespace danling::inline v0::detail
