#include <danling/core/detail/signal_queue.hpp>

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

SignalQueue::SignalQueue(std::string_view where) {
  // Some parents leave SIGCHLD ignored; the kernel would then drop the exit codes of children.
  signal(SIGCHLD, SIG_DFL);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction before{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) {  // a blocked signal is queued even if it is ignored
      sigaddset(&wanted, number);
    }
  }
  descriptor_ = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  check<StateError>(descriptor_ >= 0, where, "expected a descriptor of signals, got ", std::strerror(errno));
  sigprocmask(SIG_BLOCK, &wanted, &mask_before_);
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
}

SignalQueue::~SignalQueue() {
  close(descriptor_);
  restore();
}

int SignalQueue::next() const {
  signalfd_siginfo got{};
  ssize_t size = 0;
  while ((size = read(descriptor_, &got, sizeof got)) < 0 && errno == EINTR) {
  }
  return size == static_cast<ssize_t>(sizeof got) ? static_cast<int>(got.ssi_signo) : 0;
}

void SignalQueue::restore() const {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

}  // namespace danling::inline v0
