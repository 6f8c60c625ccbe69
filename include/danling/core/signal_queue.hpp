// The signals that a parent of other processes receives, read from a descriptor instead of handlers.
#pragma once

#include <signal.h>

#include <string_view>

namespace danling::inline v0 {

/// SIGCHLD and the signals to pass on (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2), blocked in the calling
/// thread while it lives and read one by one; one that was ignored before, as under `nohup`, stays so. A write to a
/// closed pipe is an error, not SIGPIPE. For the only thread of a process.
class SignalQueue {
 public:
  /// `where`: the operation in messages. @throws StateError when there is no descriptor left
  explicit SignalQueue(std::string_view where);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable while a signal waits.
  int descriptor() const { return descriptor_; }
  /// The next signal that waits, or 0.
  int next() const;
  /// Restores the settings from before, but for SIGCHLD, which has its default; only async-signal-safe calls, for the
  /// process between fork and exec.
  void restore() const;

  /// Whether the signal asks a process to end.
  static bool requests_stop(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  }

 private:
  int descriptor_ = -1;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
};

}  // namespace danling::inline v0
