// Stop requests by signal: a handler stores the signal, the loops poll it.
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

/// Returns the signal that requested a stop of this process, or 0. Costs one relaxed load; always 0 without a
/// SignalGuard.
inline int stop_signal() noexcept { return detail::stop_signal.load(std::memory_order_relaxed); }

/// Returns "SIGTERM" for SIGTERM, and "signal 42" for a signal without a common name.
std::string signal_name(int signal);

/// Handles the given signals: the first sets `stop_signal()`, a second ends the process by `_exit(128 + signal)`.
///
/// The same signal again within 100 ms counts as one request, since launchers such as `timeout` send it both to the
/// process and to its group. Signals that were ignored before (as under `nohup`) stay ignored. Only one guard may exist
/// in a process. Interrupted system calls are restarted.
class SignalGuard {
 public:
  /// Installs the handlers and clears `stop_signal()`.
  /// @throws StateError if another guard exists or a signal cannot be handled
  SignalGuard(std::initializer_list<int> signals = {SIGTERM, SIGINT, SIGHUP});
  /// Restores the earlier handlers and clears `stop_signal()`.
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
