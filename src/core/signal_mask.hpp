// Blocks signals in a thread for a scope.
#pragma once

#include <csignal>
#include <ctime>

namespace danling::inline v0::detail {

/// Blocks signals in the calling thread and in threads that it starts meanwhile.
class SignalMask {
 public:
  /// Blocks every signal.
  SignalMask() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalMask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalMask(const SignalMask&) = delete;
  SignalMask& operator=(const SignalMask&) = delete;

 private:
  sigset_t before_;
};

/// Blocks a signal that a failing write raises and that ends the process by default; discards one that arrives. Covers
/// the calling thread and threads that it starts meanwhile.
class WriteSignalMask {
 public:
  explicit WriteSignalMask(int signal) {
    sigemptyset(&signal_);
    sigaddset(&signal_, signal);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, signal) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~WriteSignalMask() {
    if (!was_pending_) {
      const timespec now{};
      sigtimedwait(&signal_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WriteSignalMask(const WriteSignalMask&) = delete;
  WriteSignalMask& operator=(const WriteSignalMask&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

/// For SIGXFSZ, raised by writes past the limit of file size.
struct FileSizeSignalMask : WriteSignalMask {
  FileSizeSignalMask() : WriteSignalMask(SIGXFSZ) {}
};

}  // namespace danling::inline v0::detail
