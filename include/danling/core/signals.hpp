// A request to stop that arrives as a signal: noted by a handler, polled by the loops.
#pragma once

#include <atomic>
#include <csignal>
#include <initializer_list>
#include <string>
#include <vector>

namespace danling::inline v0 {

namespace detail {
extern std::atomic<int> stop_signal;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");
}  // namespace detail

/// The signal that requested a stop of this process, or 0. Costs one relaxed load; always 0 while no SignalGuard lives.
inline int stop_signal() noexcept { return detail::stop_signal.load(std::memory_order_relaxed); }

/// "SIGTERM" for SIGTERM; "signal 42" for one without a usual name.
std::string signal_name(int signal);

/// Turns the first of the given signals into `stop_signal()` and lets a second one end the process at once.
///
/// A second signal calls `_exit(128 + signal)`. The same signal again within 100 ms counts as the same request, since
/// launchers such as `timeout` send it both to the process and to its group. Signals that were ignored before (as
/// under `nohup`) stay ignored. One guard may live in a process. Interrupted system calls are restarted.
class SignalGuard {
 public:
  /// Installs the handlers and forgets an earlier request.
  /// @throws StateError when another guard lives, or a signal cannot be handled.
  SignalGuard(std::initializer_list<int> signals = {SIGTERM, SIGINT, SIGHUP});
  /// Puts the earlier handlers back and forgets the request.
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  struct Saved {
    int signal;
    struct sigaction action;
  };
  void restore() noexcept;

  std::vector<Saved> saved_;
};

}  // namespace danling::inline v0
