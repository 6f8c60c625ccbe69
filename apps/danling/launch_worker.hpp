// One worker of `danling launch`: a process in a process group of its own, and the pipes of its output.
#pragma once

#include <sys/types.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "launch_output.hpp"
#include "launch_signals.hpp"

namespace danling_command {

/// Where a worker stands among the others; what its variables say.
struct WorkerPlace {
  int rank = 0;
  int world_size = 1;
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::string run_id;
};

/// The program cannot be started. Exit codes are those of shells: 127 if it does not exist, 126 otherwise.
struct CannotStart : std::runtime_error {
  CannotStart(const std::string& text, int exit_code) : std::runtime_error(text), code(exit_code) {}
  int code;
};

class Worker {
 public:
  /// The read end of stdout or stderr of the worker, and where its lines go.
  struct Stream {
    int target;           ///< 1 or 2
    int descriptor = -1;  ///< -1 after its end
    LineSplitter lines;
  };

  /// Starts the program. The process dies with this one, also when this one is killed.
  /// @throws CannotStart; danling::StateError when no process or pipe can be had
  Worker(const std::vector<std::string>& program, const WorkerPlace& place, const LaunchSignals& signals);
  /// Kills and reaps it.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  std::array<Stream, 2>& streams() { return streams_; }
  bool has_output() const { return streams_[0].descriptor >= 0 || streams_[1].descriptor >= 0; }

  /// Whether its process runs. It remains a zombie until `release`, so that its number stays its own.
  bool running() const { return running_; }
  /// Looks whether the process has ended. Returns true once, when it has.
  bool notice_end();
  /// Exit code, or 128 + signal; set by `notice_end`.
  int code() const { return code_; }
  /// The signal that ended it, or 0.
  int signal() const { return signal_; }

  /// To the process and those it has started in its group, as a terminal does; SIGUSR1 and SIGUSR2 to the process
  /// alone.
  void send(int signal) const;
  /// Kills what is left in its group, reaps it and closes its pipes.
  void release();
  bool released() const { return pid_ < 0; }

 private:
  int rank_;
  pid_t pid_ = -1;
  std::array<Stream, 2> streams_{Stream{1, -1, {}}, Stream{2, -1, {}}};
  bool running_ = false;
  int code_ = 0;
  int signal_ = 0;
};

}  // namespace danling_command
