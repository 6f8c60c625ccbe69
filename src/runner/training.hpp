// Parts shared by train() and the program's loop: preparation, due evaluations, errors.
#pragma once

#include <exception>
#include <string_view>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Training {
 public:
  explicit Training(TorchRunnerBase& runner) : runner_(runner) {}

  /// @param hosted  in a loop of the program
  void prepare(bool hosted = false);
  /// The part of prepare() that steps need; the finders call it too.
  void prepare_steps();
  /// True after every epoch; in step mode at `evaluate_interval`, where the windows of all models are closed.
  bool evaluation_is_due() const;
  /// The last save of a run. A failure is an error on all ranks, which wait for it without a timeout while the main
  /// process lives.
  void save_last();
  /// Drops the open windows, notifies callbacks and ranks, and rethrows the current exception.
  /// @param began  callbacks have received on_run_begin
  [[noreturn]] void rethrow(bool began = true);

 private:
  void continue_after_error();
  void notify(const std::exception& error);
  void drop_windows();

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
