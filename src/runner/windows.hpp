// Accumulation windows of the models in training: micro-batches open them, updates close them.
#pragma once

#include <string_view>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// All models share one sequence of micro-batches: a window of n closes after each n-th, and the last micro-batch of a
/// pass closes all windows.
class TorchRunnerBase::Internals::Windows {
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
  /// Called before the first backward pass of the first steps, and until one window had several: warns of gradients
  /// before that of a window, to which it would add. @throws StateError when those of the window are gone
  void check_gradients_before(Learner& learner);
  /// Called before the backward pass of the first steps: warns of parameters that no model has.
  void check_leaves(const at::Tensor& loss, const OpenStep& step);
  /// Called after the backward pass of the first steps, for check_gradients_kept().
  void note_gradients(Learner& learner) const;
  /// Called before train_step, with several models.
  void note_schedules();
  /// Called after it. @throws StateError if it has stepped a schedule
  void check_schedules() const;
  /// Drops accumulated gradients after an exception.
  void drop();

 private:
  static void note_schedule(Learner& learner) {
    learner.schedule_count = learner.scheduler ? learner.scheduler->step_count() : 0;
  }
  void close(Learner& learner, OpenStep& step);
  void update(Learner& learner, OpenStep& step, double own_weight);
  bool keeps_gradients() const;  ///< between micro-batches, and only for this window
  static bool has_gradient(const Learner& learner);
  void require_gradients(const Learner& learner);
  void check_gradients_kept(const Learner& learner);
  void check_not_zero(const Learner& learner);
  void check_optimizer(const Learner& learner, const OpenStep& step) const;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
