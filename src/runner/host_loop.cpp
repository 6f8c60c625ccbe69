// Training and evaluation in a loop of the program's own, one batch at a time.
#include <functional>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include "runner/host_loop.hpp"
#include "runner/learners.hpp"
#include "runner/records.hpp"
#include "runner/saver.hpp"
#include "runner/services.hpp"
#include "runner/training_call.hpp"

namespace danling::inline v0 {

TorchRunnerBase::PausedPass::PausedPass(TorchRunnerBase& runner)
    : runner_(runner), active_(runner.pass_ != nullptr && !runner.paused_) {
  if (active_) {
    const Measurements now = runner.measurements();
    runner.saved_ = {clone(now.meters), clone(now.metrics), clone(now.losses)};
    runner.paused_ = true;
  }
}

TorchRunnerBase::PausedPass::~PausedPass() {
  if (!active_) {
    return;
  }
  runner_.paused_ = false;
  if (runner_.pass_ == nullptr) {
    return;  // the runner is being destroyed
  }
  try {
    runner_.enter(RunnerMode::train, runner_.pass_->split());
    runner_.restore_measurements(runner_.saved_);
    runner_.pass_->go_on();
  } catch (const std::exception& error) {  // of metrics that do not take back what they gave
    runner_.logger().warning(concat("the training pass has lost its meters: ", error.what()));
  }
}

// ---- training -------------------------------------------------------------------------------------------------------

void TorchRunnerBase::begin_host_training(const std::string& split) {
  static constexpr auto operation = "runner.train_on_batch";
  initialize();
  has_trained_ = true;
  Records(*this).begin();
  check<ConfigError>(
      !epochs(), operation,
      "expected `steps`, or neither, where the program brings the batches, got epochs=", epochs().value_or(0));
  prepare_training();
  const auto host = std::make_shared<HostLoop>();
  host->splits = {split};
  callbacks_.notify(&Callback::on_run_begin, RunEvent{{*this}, host->splits, {}});
  callbacks_.notify(&Callback::on_round_begin, RoundEvent{{*this}, state_.train.epoch, loop_.round});
  const bool resumed = continuing_ && loop_.split == split;
  const std::int64_t first_step = resumed ? loop_.first_step : state_.train.global_step;
  const auto total = steps() ? std::optional(*steps() - first_step) : std::nullopt;
  host->frame = std::make_unique<detail::LoopFrame>(*this, split, total);
  begin_train_split(*host->frame, resumed);
  loop_.target_step = steps().value_or(0);
  pass_ = host->frame.get();
  host_ = host;
}

TorchRunnerBase::BatchReport TorchRunnerBase::train_host_batch(data::BatchRef batch, std::int64_t samples,
                                                               const std::string& split, bool last) {
  static constexpr auto operation = "runner.train_on_batch";
  check_not_training(operation);
  if (host_ == nullptr) {
    begin_host_training(split);
  }
  check<StateError>(host_->evaluation == nullptr, operation,
                    "expected finish_evaluation() after evaluate_on_batch, got a training batch");
  check<ConfigError>(split == host_->splits.front(), operation, "expected batches of split ",
                     quote(host_->splits.front()), " until finish_training(), got one of ", quote(split));
  const TrainingCall call(*this);
  try {
    OpenStep step = train_micro_batch(*host_->frame, {batch, samples, last});
    if (is_settled()) {
      if (std::exchange(requests_.evaluation, false)) [[unlikely]] {
        evaluate_between_steps();
      }
      maybe_stop(/*save=*/true, step.agreed.stop);
    }
    const auto total = steps();
    return {std::move(step.loss), step.updated, requests_.ending || (total && state_.train.global_step >= *total)};
  } catch (const Stopped&) {
    end_host_training();
    throw;
  } catch (...) {
    rethrow_from_training();
  }
}

void TorchRunnerBase::end_host_training() {
  pass_ = nullptr;
  host_.reset();
  gradient_accumulators_.clear();
  split_.clear();
}

const ResultBook& TorchRunnerBase::finish_training() {
  static constexpr auto operation = "runner.finish_training";
  check_not_training(operation);
  check<StateError>(host_ != nullptr, operation, "expected a call after train_on_batch, got one without");
  check<StateError>(host_->evaluation == nullptr, operation,
                    "expected finish_evaluation() after evaluate_on_batch, got the end of training");
  Learners(*this).close_last();
  loop_.split.clear();
  Result row;
  row.set(host_->splits.front(), host_->frame->finish());
  pass_ = nullptr;
  Records(*this).append(state_.train.global_step, row);
  callbacks_.notify(&Callback::on_round_end, RoundEvent{{*this}, state_.train.epoch, row});
  ++state_.train.epoch;
  save_checkpoint("latest", /*save_best=*/true, /*last_step=*/true);
  settle_checkpoints();
  Saver(*this).export_best();
  Records(*this).settle();
  callbacks_.notify(&Callback::on_run_end, RunEvent{{*this}, host_->splits, {}});
  end_host_training();
  return results_;
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

TorchRunnerBase::BatchReport TorchRunnerBase::evaluate_host_batch(data::BatchRef batch, std::int64_t samples,
                                                                  const std::string& split) {
  static constexpr auto operation = "runner.evaluate_on_batch";
  initialize();
  check_not_training(operation);
  if (host_ == nullptr) {
    host_ = std::make_shared<HostLoop>();
  }
  auto& evaluation = host_->evaluation;
  if (evaluation == nullptr) {
    evaluation = std::make_unique<HostLoop::Evaluation>(*this, split);
  }
  check<ConfigError>(split == evaluation->frame.split(), operation, "expected batches of split ",
                     quote(evaluation->frame.split()), " until finish_evaluation(), got one of ", quote(split));
  at::Tensor loss = evaluate_one(evaluation->frame, batch, samples);
  evaluation->frame.log(++evaluation->done);
  return {std::move(loss), false, false};
}

Result TorchRunnerBase::finish_evaluation() {
  check<StateError>(host_ != nullptr && host_->evaluation != nullptr, "runner.finish_evaluation",
                    "expected a call after evaluate_on_batch, got one without");
  const Result result = host_->evaluation->frame.finish();
  const std::string split = host_->evaluation->frame.split();
  host_->evaluation.reset();  // gives the training pass its meters back
  if (host_->frame == nullptr) {
    host_.reset();
    return result;  // of a program that only evaluates
  }
  if (!results_.score_split()) {
    results_.select(split, config().score_name, Records(*this).known_score_direction());
  }
  Result row;
  row.set(split, result);
  Records(*this).append(state_.train.global_step, row);
  if (is_settled()) {
    save_checkpoint();  // when the score is the best so far
  }
  return result;
}

void TorchRunnerBase::infer_host_batch(const std::function<void()>& infer) {
  initialize();
  without_gradients(infer);
}

}  // namespace danling::inline v0
