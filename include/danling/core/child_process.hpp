// A program that is started as a child in a process group of its own, signalled and reaped.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/core/signal_queue.hpp>

namespace danling::inline v0 {

/// The program cannot be started. Exit codes are those of shells: 127 if it does not exist, 126 otherwise.
class CannotStart : public Error {
 public:
  CannotStart(const std::string& text, int exit_code) : Error(text), code(exit_code) {}
  ~CannotStart() override;
  int code;
};

struct ChildOptions {
  std::string_view where;  ///< the operation in messages
  /// Words; a first one without '/' is looked up in PATH.
  const std::vector<std::string>& program;
  std::vector<std::string> variables = {};  ///< `NAME=value`, in place of those of this process
  int output = -1, error = -1;              ///< descriptors of stdout and stderr; -1: those of this process
};

/// The child reads nothing from stdin, since a process outside of the terminal's foreground group is stopped when it
/// reads from it.
class ChildProcess {
 public:
  /// Starts the program with the signal settings from before `signals`. The child dies with the calling thread, also
  /// when this process is killed. @throws CannotStart; StateError when no process or pipe can be had
  ChildProcess(const ChildOptions& options, const SignalQueue& signals);
  /// Calls release().
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
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
  /// Kills what is left in its group, and reaps it.
  void release();
  bool released() const { return pid_ < 0; }

 private:
  pid_t pid_ = -1;
  bool running_ = false;
  int code_ = 0;
  int signal_ = 0;
};

/// A pipe whose ends are closed with it, and in the programs that are started.
class Pipe {
 public:
  /// @throws StateError
  explicit Pipe(std::string_view where);
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  /// The caller closes it.
  int take_reader();
  void close_writer();

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace danling::inline v0
