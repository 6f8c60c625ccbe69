// A loop that publishes its position, for the watchdog of `comm.step_timeout_seconds` and for the heartbeat, and logs
// LibTorch's warnings.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

#include <runner/torch_warnings.hpp>

namespace danling::inline v0 {

/// Starts the watchdog's thread when needed and makes it expect steps for the lifetime of the outermost scope: a pause
/// between two calls of the program is not a hang. Without watchdog and heartbeat `watched_` is null.
class TorchRunnerBase::Internals::WatchedLoop {
 public:
  explicit WatchedLoop(TorchRunnerBase& runner);
  ~WatchedLoop();
  WatchedLoop(const WatchedLoop&) = delete;
  WatchedLoop& operator=(const WatchedLoop&) = delete;

  /// Watches `runner`, whose group is new. Requires that `watched_` is null.
  static void begin(TorchRunnerBase& runner);
  /// Publishes the position in a pass, counted from 1. Requires that `watched_` is set.
  static void mark_reading(TorchRunnerBase& runner, std::int64_t done);
  static void mark_computing(TorchRunnerBase& runner, std::int64_t done);

 private:
  TorchRunnerBase& runner_;
  detail::TorchWarnings::Scope warnings_;
  bool outermost_;
};

}  // namespace danling::inline v0
