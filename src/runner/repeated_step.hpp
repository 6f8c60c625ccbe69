// Training steps that run several times for one update, for optimizers that evaluate the loss again (LBFGS).
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// A step in progress whose train_step can run again.
struct detail::RepeatedStep {
  data::BatchRef batch;
  RunnerRNGState generators;  ///< at the start of the step
  at::Tensor loss = {};       ///< the sum of the losses of its backward passes
  bool again = false;         ///< a repetition: counts and updates nothing
};

class TorchRunnerBase::Internals::StepRepeater {
 public:
  explicit StepRepeater(TorchRunnerBase& runner) : runner_(runner) {}

  /// @throws ConfigError for settings under which a repetition would not return the same loss and gradients
  void check_settings(const Learner& learner) const;
  /// Runs train_step for the first time, so that the update can repeat it.
  void run(OpenStep& step, data::BatchRef batch);
  /// Runs one update. Its first evaluation is the step in progress; each further evaluation repeats train_step, with
  /// the same batch and random numbers, only for the gradients: meters, metrics and losses are restored afterwards.
  void update(Learner& learner);

 private:
  class Scope;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
