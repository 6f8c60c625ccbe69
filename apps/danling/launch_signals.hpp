// The signals that `danling launch` receives, read from a descriptor instead of handlers.
#pragma once

#include <signal.h>

namespace danling_command {

/// SIGCHLD and the signals that are passed on, blocked while it lives and read one by one; one that was ignored before,
/// as under `nohup`, stays so. A write to a closed pipe is an error, not SIGPIPE.
class LaunchSignals {
 public:
  /// @throws danling::StateError when there is no descriptor left
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  /// Readable while a signal waits.
  int descriptor() const { return descriptor_; }
  /// The next signal that waits, or 0.
  int next() const;
  /// Restores the settings from before, but for SIGCHLD, which has its default; only async-signal-safe calls, for the
  /// process between fork and exec.
  void restore() const;

 private:
  int descriptor_ = -1;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
};

}  // namespace danling_command
