// One pass of training over a split: its batches, one micro-batch after another.
#include <danling/runner/torch_runner_base.hpp>

#include <utility>

#include <danling/telemetry/logger.hpp>

#include "runner/learners.hpp"
#include "runner/loop_frame.hpp"
#include "runner/saver.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {
namespace {

/// Where an evaluation in the middle finds the pass that it interrupts.
class PassScope {
 public:
  PassScope(detail::LoopFrame*& place, detail::LoopFrame& pass) : place_(place) { place_ = &pass; }
  ~PassScope() { place_ = nullptr; }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  detail::LoopFrame*& place_;
};

}  // namespace

Result TorchRunnerBase::train_split(const std::string& split, bool resumed) {
  data::LoaderBase& loader = this->loader(split);
  const std::int64_t first_step = resumed ? loop_.first_step : state_.train.global_step;
  const auto total = by_steps_ ? std::optional(loop_.target_step - first_step) : loader.length();
  detail::LoopFrame frame(*this, split, total);
  begin_train_split(frame, resumed);
  const PassScope scope(pass_, frame);
  if (!by_steps_) {
    loader.start_epoch(state_.train.epoch);
  }
  while (next_batch(loader, split)) {
    const OpenStep step = train_micro_batch(frame, {batch_of(loader), loader.batch_size(), loader.is_last()});
    if (is_settled()) {  // never inside an accumulation window
      if (std::exchange(requests_.evaluation, false)) [[unlikely]] {
        evaluate_between_steps();
      }
      maybe_stop(/*save=*/true, step.agreed.stop);
    }
  }
  Learners(*this).close_last();
  loop_.split.clear();
  return frame.finish();
}

// By epochs what the pass has; by steps batches up to the target, of as many passes as that takes.
bool TorchRunnerBase::next_batch(data::LoaderBase& loader, const std::string& split) {
  if (!by_steps_) {
    return loader.next();
  }
  if (state_.train.global_step >= loop_.target_step || (requests_.ending && is_settled())) {
    return false;
  }
  if (!loader.next()) {
    loader.start_epoch(loader.epoch() + 1);
    check<DataError>(loader.next(), "runner.train", "expected batches in split ", quote(split), ", got none");
  }
  return true;
}

void TorchRunnerBase::begin_train_split(detail::LoopFrame& frame, bool resumed) {
  enter(RunnerMode::train, frame.split());
  Learners(*this).forget_windows();
  if (resumed) {
    restore_measurements(saved_);
    frame.start(by_steps_ ? state_.train.global_step - loop_.first_step : loop_.iteration);
  } else {
    loop_.split = frame.split();
    loop_.iteration = 0;
    loop_.first_step = state_.train.global_step;
    frame.start();
  }
  continuing_ = false;
}

// A callback has asked for it; the pass goes on as if nothing had been, generators included.
void TorchRunnerBase::evaluate_between_steps() {
  if (evaluate_splits().empty() && told_.insert("evaluation").second) {
    logger().warning("runner.request_evaluation: an evaluation was asked for, and there is no split to evaluate");
  }
  for (const auto& split : evaluate_splits()) {
    evaluate_in_training(split, /*whole=*/true);
    state_.rng.restore();
  }
}

/// Where backward() and step() find the step that they belong to, for as long as it lasts.
class TorchRunnerBase::StepScope {
 public:
  StepScope(TorchRunnerBase& runner, OpenStep& step) : runner_(runner), step_(step) {
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

TorchRunnerBase::OpenStep TorchRunnerBase::open_step(const MicroBatch& micro_batch,
                                                     std::optional<std::int64_t> normalizer) {
  OpenStep step{.normalizer = normalizer,
                .last = micro_batch.last,
                .number = ++step_number_,
                .position = state_.train.micro_step};
  learner_ = &learners_.front();
  backward_options_ = {};
  if (learner_->name.empty()) {
    Learners(*this).begin_window(*learner_, step);
    step.place = learner_->place;
  } else {
    step.place.closes = step.last || (step.position + 1) % accum_span_ == 0;
  }
  return step;
}

TorchRunnerBase::OpenStep TorchRunnerBase::train_micro_batch(detail::LoopFrame& frame, const MicroBatch& micro_batch) {
  frame.data_ready();
  const auto [normalizer, tokens] = count_batch(micro_batch.batch);
  OpenStep step = open_step(micro_batch, normalizer);
  at::Tensor loss;
  {
    const StepScope scope(*this, step);
    loss = run_train_step(micro_batch.batch);
  }
  if (step.steps != 1 && (step.steps == 0 || learners_.size() == 1)) [[unlikely]] {
    fail<StateError>("runner.train_step", "expected one call of step() for each micro-batch, got ", step.steps,
                     "; an override of train_step must call it exactly once",
                     learners_.size() > 1 ? " or, for one of several models, step(name)" : "");
  }
  if (learners_.size() > 1) {
    Learners(*this).close_open(step);
  }
  if (step.last) {
    Learners(*this).round_micro_step();
  }

  ++loop_.iteration;
  for (const Learner& learner : learners_) {
    if (learner.scheduler) {
      frame.lr(learner.name).update(learner.optimizer->param_groups().front().lr);
    }
  }
  if (loss.defined() && normalizer.value_or(1) > 0) {
    frame.loss().update(loss, normalizer.value_or(1));
  }
  frame.observe(micro_batch.samples, tokens);
  const std::int64_t done = by_steps_ ? state_.train.global_step - loop_.first_step : loop_.iteration;
  if (callbacks_.has_step_listeners()) {
    callbacks_.notify_step({{*this},
                            frame.split(),
                            loop_.iteration,
                            done,
                            loss,
                            micro_batch.samples,
                            step.place.closes,
                            step.updated,
                            frame.now()});
  }
  if (!by_steps_ || step.updated) {
    frame.log(done);
  }
  if (step.updated && save_interval_ > 0 && state_.train.global_step % save_interval_ == 0 &&
      !evaluates_after_round()) {
    save_checkpoint();  // otherwise with the scores
  }
  if (!services().deferred_saves.empty() && is_settled()) [[unlikely]] {
    Saver(*this).save_deferred();
  }
  step.loss = std::move(loss);
  return step;
}

}  // namespace danling::inline v0
