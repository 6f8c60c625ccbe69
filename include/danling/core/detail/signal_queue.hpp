// Reads the signals of a parent process from a descriptor, instead of by handlers.
#pragma once

#include <signal.h>

#include <string_view>

namespace danling::inline v0 {

/// Blocks SIGCHLD and the signals to forward (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2) in the calling thread
/// and queues them. Signals that were ignored before, as under `nohup`, stay ignored. Also ignores SIGPIPE, so a write
/// to a closed pipe returns an error. Only for processes with one thread.
class SignalQueue {
 public:
  /// `where` is the operation in messages. @throws StateError if the process has no descriptor left
  explicit SignalQueue(std::string_view where);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable while a signal is queued.
  int descriptor() const { return descriptor_; }
  /// Returns the next queued signal, or 0; does not wait.
  int next() const;
  /// Restores the earlier signal settings, except SIGCHLD, which gets its default. Makes only async-signal-safe calls,
  /// so a child may call it between fork and exec.
  void restore() const;

  /// Returns true for SIGINT, SIGTERM, SIGHUP and SIGQUIT.
  static bool requests_stop(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  }

 private:
  int descriptor_ = -1;
  sigset_t mask_before_{};
  struct sigaction pipe_before_{};
};

}  // namespace danling::inline v0
