// Restarts a program that died or hangs, until it ends by itself or fails again and again without progress.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0 {

struct SupervisorOptions {
  std::vector<std::string> program = {};  ///< words; a first one without '/' is looked up in PATH
  std::int64_t max_failures = 3;          ///< in a row without progress, after which it gives up
  double hang_timeout = 1800.0;           ///< seconds without progress of a process, after which it hangs; 0: none
  double start_timeout = 0.0;             ///< seconds until the first heartbeat; 0: any time
  double grace = 60.0;                    ///< seconds between SIGTERM and SIGKILL
  double backoff = 1.0;                   ///< seconds before a restart; doubles with each failure without progress
  double max_backoff = 300.0;
  /// Adds `--auto_resume true`, `--heartbeat.*` and `--comm.step_timeout_seconds` to the words, unless they are there:
  /// the options of a program of `dl::run`.
  bool add_arguments = true;
  /// Directory of the program's heartbeat files. Empty: a temporary one, named to the program by the variable
  /// DANLING_HEARTBEATS.
  std::filesystem::path heartbeats = {};
  /// Receives what the supervisor does, line by line; by default stderr does, after `[supervise] `.
  std::function<void(std::string_view line)> log = {};
};

/// Runs a program as a child in a process group of its own. It dies with the supervisor. Progress is a global_step in
/// its heartbeats above that of all starts before; a program without heartbeats makes none. A hang is reported with the
/// place and the state of each process that stands still; the program then gets SIGTERM, and SIGKILL after `grace`.
///
/// SIGINT, SIGTERM, SIGHUP and SIGQUIT of this process are passed on and end the supervision with the program; SIGUSR1
/// and SIGUSR2 are passed on. Not restarted: exit codes 0, 2 (an error of the config) and 75 (the time limit).
class Supervisor {
 public:
  /// @throws ConfigError for options that are out of range or contradict the program's words
  explicit Supervisor(SupervisorOptions options);

  /// Runs the program to its end. Blocks; for the main thread of a process without other threads, whose signals it
  /// takes meanwhile. @return the last exit code of the program, 128 + signal for a signal
  /// @throws CannotStart when the program cannot be started, StateError without processes or descriptors
  int run();

  /// The program's words with those that are added.
  const std::vector<std::string>& command() const { return options_.program; }

 private:
  SupervisorOptions options_;
};

}  // namespace danling::inline v0
