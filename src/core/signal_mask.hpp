// Keeps signals from a thread for a while.
#pragma once

#include <csignal>
#include <ctime>

namespace danling::inline v0::detail {

/// Blocks signals in the calling thread, and so in threads that it starts meanwhile.
class SignalMask {
 public:
  /// Every signal.
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

/// Blocks SIGXFSZ, whose default is to end the process that writes past its limit of file size, and takes the one that
/// came: the error of the write itself tells it.
class FileSizeSignalMask {
 public:
  FileSizeSignalMask() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalMask() {
    if (!was_pending_) {
      const timespec now{};
      sigtimedwait(&signal_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalMask(const FileSizeSignalMask&) = delete;
  FileSizeSignalMask& operator=(const FileSizeSignalMask&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace danling::inline v0::detail
