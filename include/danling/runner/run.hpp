// `dl::run`: main function of a program with one runner.
#pragma once

#include <concepts>
#include <functional>
#include <memory>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// Exit codes of `run`. A stop by a signal returns 128 + its number. A stop at `time_limit` saves the run and returns
/// EX_TEMPFAIL of sysexits.h, so that a batch system can requeue; the same command with `auto_resume` continues. If no
/// step ends within `comm.step_timeout_seconds`, the process exits at once with EX_SOFTWARE.
enum ExitCode : int { exit_success = 0, exit_failure = 1, exit_config = 2, exit_hung = 70, exit_time_limit = 75 };

namespace detail {

/// Closes a user's runner while all its members still exist.
template <class R>
class OwnedRunner final : public R {
 public:
  using R::R;
  ~OwnedRunner() override {
    try {
      this->close();
    } catch (...) {  // run() has closed it and reported errors; this is at most a second failure
    }
  }
};

int run(int argc, char** argv, RunnerConfig& config, const std::function<std::unique_ptr<TorchRunnerBase>()>& make,
        const std::function<void(TorchRunnerBase&)>& work);

}  // namespace detail

/// Parses the command line into a `C`, builds an `R` from it, trains, evaluates the test splits and prints a table of
/// the results. Sets signal handlers, allocator and thread counts of the process. Reports every error as one line on
/// stderr and an exit code.
template <class R, std::derived_from<RunnerConfig> C>
  requires std::derived_from<R, TorchRunnerBase>
int run(int argc, char** argv) {
  C config;
  return detail::run(
      argc, argv, config, [&config] { return std::make_unique<detail::OwnedRunner<R>>(config); }, nullptr);
}

/// Calls `work` instead of training and testing: `dl::run<R, C>(argc, argv, [](R& runner) { ... })`. Prints the table
/// if `work` trained. `summary`, `find_lr.enabled` and `find_batch_size.enabled` run their tool in place of `work`.
template <class R, std::derived_from<RunnerConfig> C, std::invocable<R&> Work>
  requires std::derived_from<R, TorchRunnerBase>
int run(int argc, char** argv, Work work) {
  C config;
  return detail::run(
      argc, argv, config, [&config] { return std::make_unique<detail::OwnedRunner<R>>(config); },
      [&work](TorchRunnerBase& runner) { work(static_cast<R&>(runner)); });
}

}  // namespace danling::inline v0
