// Starts a program as a child in a new process group, signals it and reaps it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include <danling/core/detail/signal_queue.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// The program cannot be started. `code` is the exit code of shells: 127 if the program does not exist, 126 otherwise.
class ProcessStartError : public Error {
 public:
  ProcessStartError(const std::string& text, int exit_code) : Error(text), code(exit_code) {}
  ~ProcessStartError() override;
  int code;
};

struct ChildProcessOptions {
  std::string_view where;  ///< the operation in messages
  /// The program and its arguments; a program name without '/' is looked up in PATH.
  const std::vector<std::string>& program;
  std::vector<std::string> variables = {};  ///< `NAME=value`; they override this process's environment
  int output = -1, error = -1;              ///< descriptors of stdout and stderr; -1: inherited
};

/// A running child. Its stdin is empty, since the terminal stops a background process group that reads from it.
class ChildProcess {
 public:
  /// Starts the program with the signal settings from before `signals`. The kernel kills the child when the calling
  /// thread ends, even by SIGKILL. @throws ProcessStartError; StateError if the system has no process or pipe left
  ChildProcess(const ChildProcessOptions& options, const SignalQueue& signals);
  /// Calls release(), which kills a running child.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// True until `poll_exit` returns true. The process stays a zombie until `release`, so its pid is not reused.
  bool running() const { return running_; }
  /// Checks, without waiting, whether the process has ended. Returns true once, at the first check after the end.
  bool poll_exit();
  /// Exit code, or 128 + signal; set by `poll_exit`.
  int code() const { return code_; }
  /// The signal that ended it, or 0.
  int signal() const { return signal_; }

  /// Sends `signal` to the process group, as a terminal does; SIGUSR1 and SIGUSR2 only to the process.
  void send(int signal) const;
  /// Kills the rest of the process group and reaps the process.
  void release();
  bool released() const { return pid_ < 0; }

 private:
  pid_t pid_ = -1;
  bool running_ = false;
  int code_ = 0;
  int signal_ = 0;
};

/// A pipe. The destructor closes both ends; started programs do not inherit them.
class Pipe {
 public:
  /// @throws StateError if the process has no descriptor left
  explicit Pipe(std::string_view where);
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  /// Releases the reading end; the caller closes it.
  int take_reader();
  void close_writer();

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace danling::inline v0
