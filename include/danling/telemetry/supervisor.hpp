// Supervisor: restarts a program that dies or hangs, until it ends or repeatedly fails without progress.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace danling::inline v0 {

struct SupervisorOptions {
  std::vector<std::string> program = {};  ///< program and arguments; a name without '/' is looked up in PATH
  std::int64_t max_failures = 3;          ///< gives up after so many failures in a row without progress
  double hang_timeout = 1800.0;           ///< seconds without progress that count as a hang; 0: no limit
  double start_timeout = 0.0;             ///< seconds until the first heartbeat; 0: no limit
  double grace = 60.0;                    ///< seconds between SIGTERM and SIGKILL
  double backoff = 1.0;                   ///< seconds before a restart; doubles with each failure without progress
  double max_backoff = 300.0;
  /// Adds the options `--auto_resume true`, the options of `heartbeat` and `--comm.step_timeout_seconds` of `dl::run`
  /// to the arguments, unless they are present.
  bool add_arguments = true;
  /// Directory of the program's heartbeat files. Empty: a temporary directory, which the program gets in the variable
  /// DANLING_HEARTBEATS.
  std::filesystem::path heartbeats = {};
  /// Receives the log lines; the default writes them to stderr after `[supervise] `.
  std::function<void(std::string_view line)> log = {};
};

/// Runs a program as a child in a separate process group; the program dies with the supervisor. Progress is a
/// global_step in the heartbeats above that of all earlier starts; a program without heartbeats makes no progress. On a
/// hang it logs position and state of each process without progress, sends SIGTERM, and SIGKILL after `grace`.
///
/// Forwards SIGINT, SIGTERM, SIGHUP and SIGQUIT to the program and then ends with it; also forwards SIGUSR1 and
/// SIGUSR2. Does not restart after exit codes 0, 2 (an error of the config) and 75 (the time limit).
class Supervisor {
 public:
  /// @throws ConfigError for options that are out of range or contradict the program's arguments
  explicit Supervisor(SupervisorOptions options);

  /// Runs the program until the supervision ends; blocks, and handles the signals of this process: call it in the main
  /// thread of a process without other threads. @return the last exit code of the program, or 128 + signal
  /// @throws ProcessStartError if the program cannot be started, StateError if no process or descriptor is left
  int run();

  /// The program and its arguments, including added ones.
  const std::vector<std::string>& command() const { return options_.program; }

 private:
  SupervisorOptions options_;
};

}  // namespace danling::inline v0
