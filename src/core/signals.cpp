#include <danling/core/signals.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

namespace detail {
std::atomic<int> stop_signal{0};
}  // namespace detail

namespace {

constexpr std::int64_t same_request_ns = 100'000'000;

std::atomic<bool> guarded{false};
std::atomic<std::int64_t> first_request_ns{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

std::int64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Only calls that POSIX lists as safe in a handler.
extern "C" void danling_note_stop_signal(int signal) {
  const int saved_errno = errno;
  int expected = 0;
  const std::int64_t now = now_ns();
  if (detail::stop_signal.compare_exchange_strong(expected, signal)) {
    first_request_ns.store(now);
  } else {
    // 0: another thread's handler has stored the signal and is about to store the time.
    const std::int64_t first = first_request_ns.load();
    if (expected != signal || (first != 0 && now - first > same_request_ns)) {
      _exit(128 + signal);
    }
  }
  errno = saved_errno;
}

void forget_request() noexcept {
  first_request_ns.store(0);
  detail::stop_signal.store(0);
}

}  // namespace

std::string signal_name(int signal) {
  static constexpr struct {
    int signal;
    const char* name;
  } names[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
               {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
               {SIGSYS, "SIGSYS"},   {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},
               {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
               {SIGXCPU, "SIGXCPU"}};
  for (const auto& known : names) {
    if (known.signal == signal) {
      return known.name;
    }
  }
  return concat("signal ", signal);
}

SignalGuard::SignalGuard(std::initializer_list<int> signals) {
  check<StateError>(!guarded.exchange(true), "signals.guard",
                    "expected one SignalGuard at a time in this process, got a second one");
  forget_request();
  for (const int signal : signals) {
    struct sigaction action{};
    action.sa_handler = danling_note_stop_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    Saved saved{signal, {}};
    int status = sigaction(signal, nullptr, &saved.action);
    const bool ignored = status == 0 && (saved.action.sa_flags & SA_SIGINFO) == 0 && saved.action.sa_handler == SIG_IGN;
    if (status == 0 && !ignored) {
      status = sigaction(signal, &action, nullptr);
    }
    if (status != 0) {
      const int reason = errno;
      restore();
      fail<StateError>("signals.guard", "expected a signal that can be handled, got ", signal_name(signal), " (",
                       std::strerror(reason), ")");
    }
    if (!ignored) {
      saved_.push_back(saved);
    }
  }
}

SignalGuard::~SignalGuard() { restore(); }

void SignalGuard::restore() noexcept {
  // In reverse order, so that a signal listed twice gets its first handler back.
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
    sigaction(saved->signal, &saved->action, nullptr);
  }
  saved_.clear();
  forget_request();
  guarded.store(false);
}

}  // namespace danling::inline v0
