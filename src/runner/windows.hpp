// Accumulation windows of the models in training: micro-batches open them, updates close them.
#pragma once

#include <string_view>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// All models share one sequence of micro-batches: a window of n closes after each n-th, and the last micro-batch of a
/// pass closes all windows.
class TorchRunnerBase::Windows {
 public:
  /// Training steps of a process that are checked for updates and gradients besides those of the runner.
  static constexpr std::int64_t num_checked = 2;

  explicit Windows(TorchRunnerBase& runner) : runner_(runner) {}

  /// @throws ConfigError for a name that is not trained
  Learner& find(std::string_view name, std::string_view operation);
  void begin(Learner& learner, const OpenStep& step);
  void step(Learner& learner, OpenStep& step);
  /// Called after a step of several models: closes due windows of models that the step did not update.
  void close_open(OpenStep& step);
  /// Closes open windows when training ends before the data, as in step mode with windows of several lengths.
  void close_last();
  /// Joins the update of a rank that still has batches: `step.agreed` is its packet.
  void take_part(Learner& learner, OpenStep& step);
  /// `micro_step` after this micro-batch: the last one of a pass ends a whole window.
  std::int64_t next_position(const OpenStep& step) const;
  /// Weight of the open window, with one model.
  double open_weight() const;
  /// Counts a short window at the end of the data as a whole one, so that the next pass begins a new window.
  void align();
  /// Called before the backward pass of the first steps: warns of gradients before that of a window, to which it would
  /// add. @throws StateError when the gradients of the window's earlier micro-batches are gone
  void check_gradients_before(const Learner& learner, const OpenStep& step);
  /// Drops accumulated gradients after an exception.
  void drop();

 private:
  void close(Learner& learner, OpenStep& step);
  void update(Learner& learner, OpenStep& step, double own_weight);
  void require_gradients(const Learner& learner);
  void check_optimizer(const Learner& learner, const OpenStep& step) const;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
