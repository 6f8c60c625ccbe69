// One training step: the scope of backward() and step(), the call of train_step, the windows that it closes.
#include <runner/adapters.hpp>
#include <runner/agreement.hpp>
#include <runner/kept_buffers.hpp>
#include <runner/loss_terms.hpp>
#include <runner/repeated_step.hpp>
#include <runner/services.hpp>
#include <runner/train_pass.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {

/// Registers the step for its lifetime, for backward() and step().
class TorchRunnerBase::Internals::TrainPass::StepScope {
 public:
  StepScope(TorchRunnerBase& runner, OpenStep& step) : runner_(runner), step_(step) {
    Adapters(runner).use_trained();
    runner_.parallelism().begin_step(step_.place);
    runner_.open_step_ = &step;
  }
  ~StepScope() {
    runner_.open_step_ = nullptr;
    runner_.parallelism().end_step(step_.place);
  }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  TorchRunnerBase& runner_;
  OpenStep& step_;
};

TorchRunnerBase::Internals::OpenStep TorchRunnerBase::Internals::TrainPass::run_step(
    const MicroBatch& micro_batch, std::optional<std::int64_t> normalizer) {
  OpenStep step = open_step(micro_batch.last);
  run_train_step(step, micro_batch.batch, normalizer);
  if (runner_.learners_.size() > 1) {
    Windows(runner_).close_open(step);
    if (step.agreed.exhausted && runner_.joins_updates_) [[unlikely]] {
      step.agreed = Agreement(runner_).agree({.micro_step = Windows(runner_).next_position(step),
                                              .iteration = loop_.iteration});  // ends the micro-batch for joined ranks
    }
  }
  if (step.last) {
    Windows(runner_).align();
  }
  return step;
}

void TorchRunnerBase::Internals::TrainPass::run_train_step(OpenStep& step, data::BatchRef batch,
                                                           std::optional<std::int64_t> normalizer) {
  step.number = ++runner_.step_number_;
  step.normalizer = normalizer;
  step.steps = 0;
  if (trains_one_model()) [[likely]] {
    Windows(runner_).begin(*runner_.learner_, step);
    step.place = runner_.learner_->place;
  } else {
    Windows(runner_).note_schedules();
    runner_.backward_options_ = {};  // a backward pass may have thrown
    step.place.closes = step.last || (step.position + 1) % runner_.accum_span_ == 0;
  }
  {
    const StepScope scope(runner_, step);
    try {
      if (runner_.learner_->repeats_step) [[unlikely]] {
        StepRepeater(runner_).run(step, batch);
      } else {
        step.loss = runner_.run_train_step(batch);
      }
    } catch (...) {
      runner_.services().has_partial_step |= step.steps > 0;  // a model may already be updated
      throw;
    }
  }
  if (step.steps != 1) [[unlikely]] {
    check_step_calls(step);
  }
  if (step.number <= Windows::num_checked) [[unlikely]] {
    Windows(runner_).check_schedules();
  }
}

TorchRunnerBase::Internals::OpenStep TorchRunnerBase::Internals::TrainPass::open_step(bool last) {
  OpenStep step{.last = last, .position = runner_.state_.train.micro_step};
  if (runner_.loss_terms_ != nullptr) [[unlikely]] {
    runner_.loss_terms_->set_weights(global_step_);
  }
  keep_buffers();
  runner_.learner_ = &runner_.learners_.front();
  return step;
}

// Copies the buffers at the start of each window, for a skipped update to restore.
void TorchRunnerBase::Internals::TrainPass::keep_buffers() {
  for (Learner& learner : runner_.learners_) {
    if (learner.buffers != nullptr && learner.window.count() == 0) [[unlikely]] {
      learner.buffers->keep();
    }
  }
}

void TorchRunnerBase::Internals::TrainPass::check_step_calls(const OpenStep& step) const {
  check<StateError>(step.steps > 1 && !trains_one_model(), "runner.train_step",
                    "expected one call of step() for each micro-batch, got ", step.steps,
                    "; an override of train_step must call it exactly once",
                    runner_.learners_.size() == 1 ? "" : " or, for one of several models, step(name)");
}

}  // namespace danling::inline v0
