#include <runner/repeated_step.hpp>

#include <optional>
#include <string>
#include <utility>

#include <danling/optim/optimizer.hpp>
#include <danling/runner/precision.hpp>

#include <runner/adapters.hpp>
#include <runner/snapshot.hpp>

namespace danling::inline v0 {

/// Marks repetitions for its lifetime; restore() reverts their changes, except gradients.
class TorchRunnerBase::Internals::StepRepeater::Scope {
 public:
  explicit Scope(TorchRunnerBase& runner, Learner& learner) : runner_(runner), learner_(learner) {
    measured_ = Snapshot(runner).copied_measurements();
    after_.capture();
    runner.open_step_->repeat->again = true;
    learner.begun_in = runner.open_step_->number;  // the window has already counted this micro-batch
  }
  ~Scope() {
    runner_.open_step_->repeat->again = false;
    learner_.begun_in = -1;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  void restore() const {
    after_.restore();
    Snapshot(runner_).restore(measured_);
  }

 private:
  TorchRunnerBase& runner_;
  Learner& learner_;
  detail::Measurements measured_;
  RunnerRNGState after_;
};

void TorchRunnerBase::Internals::StepRepeater::run(OpenStep& step, data::BatchRef batch) {
  detail::RepeatedStep repeat{batch, {}};
  repeat.generators.capture();
  step.repeat = &repeat;
  step.loss = runner_.run_train_step(batch);
  step.repeat = nullptr;
}

void TorchRunnerBase::Internals::StepRepeater::check_settings(const Learner& learner) const {
  const std::string why = concat(" with ", learner.optimizer->name(), ", which evaluates the loss of a step again, ");
  const auto expect = [&](bool holds, std::string_view expected, const auto& got) {
    check<ConfigError>(holds, "runner.train", "expected ", expected, why, "got ", got);
  };
  expect(learner.name.empty() && runner_.learners_.size() == 1, "one model",
         concat("the optimizer of ", quote(learner.name.empty() ? "model" : learner.name), ", one of several"));
  expect(learner.accum_steps == 1, "accum_steps 1", learner.accum_steps);
  expect(runner_.is_single_process_, "one process", runner_.world_size());
  expect(learner.scaler == nullptr, "no loss scale", "one; change precision or scaler.enabled");
  expect(!learner.max_grad_norm && !learner.max_grad_value, "no max_grad_norm or max_grad_value",
         learner.max_grad_norm ? *learner.max_grad_norm : learner.max_grad_value.value_or(0));
}

void TorchRunnerBase::Internals::StepRepeater::update(Learner& learner) {
  OpenStep& step = *runner_.open_step_;
  detail::RepeatedStep& repeat = *step.repeat;
  check<StateError>(repeat.loss.defined(), "runner.step", "expected backward(loss) in train_step with ",
                    learner.optimizer->name(), ", whose updates need the loss, got none");
  std::optional<Scope> scope;
  bool first = true;
  learner.optimizer->step([&] {
    if (std::exchange(first, false)) {
      return repeat.loss;
    }
    if (!scope) {
      scope.emplace(runner_, learner);
    }
    repeat.generators.restore();
    repeat.loss.reset();
    Adapters(runner_).update();
    runner_.parallelism().zero_grad(*learner.optimizer);
    if (runner_.autocast_dtype_) {
      clear_autocast_cache();
    }
    runner_.run_train_step(repeat.batch);
    check<StateError>(repeat.loss.defined(), "runner.step", "expected backward(loss) in each run of train_step with ",
                      learner.optimizer->name(), ", got none");
    return repeat.loss;
  });
  if (scope) {
    scope->restore();
  }
}

}  // namespace danling::inline v0
