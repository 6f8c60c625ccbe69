// SweepRun: runs the trials of a sweep, several at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <danling/core/detail/signal_queue.hpp>

#include "sweep_process.hpp"
#include "sweep_spec.hpp"
#include "sweep_state.hpp"

namespace danling_command {

struct SweepLimits {
  int jobs = 1;                              ///< trials at a time
  int threads = 1;                           ///< threads per trial
  std::optional<std::uint64_t> memory = {};  ///< memory of all trials together; unset: that of the machine
  std::chrono::seconds grace{60};            ///< time between the request to stop and SIGKILL
};

/// Runs the trials. Halving runs in rungs: all trials up to the first goal, then the best trials up to the next goal.
class SweepRun {
 public:
  SweepRun(const SweepSpec& spec, const SweepLimits& limits, SweepState& state, const danling::SignalQueue& signals)
      : spec_(spec), limits_(limits), state_(state), signals_(signals) {}

  /// Runs all trials. Returns when they are done; after a signal or too many failures, when the processes have stopped.
  void run();

  /// The result: finished, stopped or failed (too many failures).
  const std::string& status() const { return status_; }
  /// The signal that stopped the sweep, or 0.
  int signal() const { return signal_; }
  /// Returns the command of a trial up to a goal.
  std::vector<std::string> command(const Trial& trial, std::int64_t goal) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    Trial* trial;
    std::int64_t goal;  ///< epochs or steps; 0 without rungs
  };
  /// A running trial; `process` is null if a killed sweep started it.
  struct Running {
    Task task;
    std::unique_ptr<TrialProcess> process;
    Clock::time_point started;
    std::uint64_t log_offset = 0;
    std::uint64_t bytes = 0;  ///< resident memory at the last measurement
    std::uint64_t peak = 0;
    bool begun = false;  ///< training has begun, so most of its memory is allocated
  };

  std::vector<Trial*> members_of(std::size_t rung) const;
  /// The trials of the current rung that have not reached its goal.
  std::vector<Task> open_tasks() const;
  std::optional<Task> next_task() const;
  bool is_running(const Trial& trial) const;
  void start_what_fits();
  bool fits();
  void start(const Task& task);
  void try_to_start(const Task& task);
  void look_at_processes();
  void measure(Running& running);
  void judge(Running& running);
  void finish(const Task& task);
  void fail(Trial& trial, const std::string& error);
  void handle_signals(int milliseconds);
  void stop_all(const std::string& reason);
  std::filesystem::path run_of(const Trial& trial) const;

  const SweepSpec& spec_;
  SweepLimits limits_;
  SweepState& state_;
  const danling::SignalQueue& signals_;
  std::vector<Running> running_;
  std::set<std::int64_t> held_;  ///< trials that others stopped; a later start continues them
  std::string status_;
  int signal_ = 0;
  bool stopping_ = false;
  bool said_memory_ = false;
  Clock::time_point kill_at_;
};

}  // namespace danling_command
