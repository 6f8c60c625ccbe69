// One pass of training over a split: its batches, one micro-batch after another.
#include <danling/runner/torch_runner_base.hpp>

#include <utility>

#include <danling/telemetry/logger.hpp>

#include "runner/checks.hpp"
#include "runner/learners.hpp"
#include "runner/loop_frame.hpp"
#include "runner/raised.hpp"
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

void TorchRunnerBase::train_split(const std::string& split, bool resumed) {
  data::LoaderBase& loader = this->loader(split);
  const std::int64_t first_step = resumed ? loop_.first_step : state_.train.global_step;
  const auto total = by_steps_ ? std::optional(loop_.target_step - first_step) : loader.length();
  detail::LoopFrame frame(*this, split, total);
  const PassScope scope(pass_, frame);
  begin_train_split(frame, resumed);
  if (!by_steps_) {
    loader.start_epoch(state_.train.epoch);
  }
  std::int64_t pass_began = -1;  // at which step; a pass that a checkpoint or another round has begun does not count
  bool counted = false;
  if (resumed && requests_.evaluation) {
    evaluate_between_steps();
  }
  while (next_batch(loader, split, pass_began)) {
    const OpenStep step = train_micro_batch(frame, {batch_of(loader), loader.batch_size(), loader.is_last()});
    counted = step.updated;
    if (is_settled()) {  // never inside an accumulation window
      obey(step.agreed);
    }
  }
  Learners(*this).close_last(counted);
  Checks(*this).models_updated(split);
  frame.finish([&](const Result& result) {
    loop_.round.set(split, result);
    loop_.split.clear();
  });
}

// By epochs what the pass has; by steps batches up to the target, of as many passes as that takes, and beyond it until
// the windows of all models are closed: only the end of the run cuts one short.
bool TorchRunnerBase::next_batch(data::LoaderBase& loader, const std::string& split, std::int64_t& pass_began) {
  if (!by_steps_) {
    return loader.next();
  }
  const std::int64_t step = state_.train.global_step;
  if ((step >= loop_.target_step && (is_settled() || step >= *steps())) || (requests_.ending && is_settled())) {
    return false;
  }
  if (!loader.next()) {
    if (std::exchange(pass_began, step) == step) {
      return false;  // a whole pass made no update
    }
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
  loop_.continuing = false;
}

// What callbacks have asked for: in one process by now, in several as agreed on before the update.
void TorchRunnerBase::obey(const StepPacket& agreed) {
  if (!alone_ || requests_.save || requests_.evaluation) [[unlikely]] {
    if (alone_ ? requests_.save : agreed.save) {
      requests_.save = false;
      save_checkpoint("latest", /*save_best=*/true, /*last_step=*/false, /*force=*/true);
    }
    if (alone_ ? requests_.evaluation : agreed.evaluate) {
      evaluate_between_steps();
    }
  }
  maybe_stop(/*save=*/true, agreed.stop);
}

// A callback has asked for it; the pass goes on as if nothing had been, generators included.
void TorchRunnerBase::evaluate_between_steps() {
  if (evaluate_splits().empty() && told_.insert("evaluation").second) {
    logger().warning("runner.request_evaluation: an evaluation was asked for, and there is no split to evaluate");
  }
  for (const auto& split : evaluate_splits()) {
    evaluate_in_training(split, /*whole=*/true);
  }
  requests_.evaluation = false;  // not before: a run that is stopped meanwhile begins it again
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
  if (learners_.size() > 1) [[unlikely]] {
    backward_options_ = {};  // of a backward pass that threw
  }
  if (learners_.size() == 1 && learner_->name.empty()) {
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
  if (step.steps != 1 && (step.steps == 0 || (learners_.size() == 1 && learners_.front().name.empty()))) [[unlikely]] {
    fail<StateError>("runner.train_step", "expected one call of step() for each micro-batch, got ", step.steps,
                     "; an override of train_step must call it exactly once",
                     learners_.size() == 1 ? "" : " or, for one of several models, step(name)");
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
    const detail::Raised event(in_step_event_);  // what they save is saved with the line of the log that follows
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
      !(is_settled() && evaluates_after_round())) {
    save_checkpoint();  // otherwise with the scores
  }
  if (!services().deferred_saves.empty() && is_settled()) [[unlikely]] {
    Saver(*this).save_deferred();
  }
  step.loss = std::move(loss);
  return step;
}

}  // namespace danling::inline v0
