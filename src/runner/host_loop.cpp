// Training and evaluation in a loop of the program's own, one batch at a time.
#include <functional>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include "runner/checks.hpp"
#include "runner/host_loop.hpp"
#include "runner/learners.hpp"
#include "runner/raised.hpp"
#include "runner/records.hpp"
#include "runner/saver.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {

TorchRunnerBase::PausedPass::PausedPass(TorchRunnerBase& runner)
    : runner_(runner), active_(runner.pass_ != nullptr && !runner.paused_) {
  if (active_) {
    const Measurements now = runner.measurements();
    runner.saved_ = {clone(now.meters), clone(now.metrics), clone(now.losses)};
    runner.paused_ = true;
    runner.state_.rng.capture();
    runner.rng_frozen_ = true;
  }
}

TorchRunnerBase::PausedPass::~PausedPass() {
  if (!active_) {
    return;
  }
  runner_.paused_ = false;
  runner_.rng_frozen_ = false;
  if (runner_.pass_ == nullptr) {
    return;  // the runner is being destroyed
  }
  try {
    runner_.state_.rng.restore();
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
  has_trained_ = true;
  Records(*this).begin();
  check<ConfigError>(
      !epochs(), operation,
      "expected `steps`, or neither, where the program brings the batches, got epochs=", epochs().value_or(0));
  const auto host = std::make_shared<HostLoop>();
  host->splits = {split};
  if (is_finished() || (at_last_step() && loop_.split.empty())) {
    host_ = host;  // an earlier start has ended the run
    return;
  }
  check<ConfigError>(!config().evaluate_interval || !evaluate_splits().empty(), operation,
                     "expected a dataset to evaluate for evaluate_interval, got none; set one, or evaluate by "
                     "evaluate_on_batch");
  prepare_training();
  callbacks_.notify(&Callback::on_run_begin, RunEvent{{*this}, host->splits, {}});
  callbacks_.notify(&Callback::on_round_begin, RoundEvent{{*this}, state_.train.epoch, loop_.round});
  const bool resumed = loop_.continuing && loop_.split == split;
  const std::int64_t first_step = resumed ? loop_.first_step : state_.train.global_step;
  const auto total = steps() ? std::optional(*steps() - first_step) : std::nullopt;
  host->frame = std::make_unique<detail::LoopFrame>(*this, split, total);
  host_ = host;
  pass_ = host->frame.get();
  try {
    begin_train_split(*host->frame, resumed);
  } catch (...) {
    end_host_training();
    throw;
  }
  loop_.target_step = steps().value_or(0);
  Checks(*this).disk_plan();
}

TorchRunnerBase::BatchReport TorchRunnerBase::train_host_batch(data::BatchRef batch, std::int64_t samples,
                                                               const std::string& split, bool last) {
  static constexpr auto operation = "runner.train_on_batch";
  check_not_training(operation);
  initialize();
  const detail::Raised call(training_);
  if (host_ == nullptr) {
    begin_host_training(split);
  }
  check<StateError>(host_->evaluation == nullptr, operation,
                    "expected finish_evaluation() after evaluate_on_batch, got a training batch");
  check<ConfigError>(split == host_->splits.front(), operation, "expected batches of split ",
                     quote(host_->splits.front()), " until finish_training(), got one of ", quote(split));
  const auto ends = [this] { return at_last_step() || (requests_.ending && is_settled()); };
  if (host_->frame == nullptr || host_->ended || ends()) {
    if (told_.insert("steps are done").second) {
      logger().info(is_finished()    ? std::string("train: nothing to do, the run is finished")
                    : at_last_step() ? concat("train: ", state_.train.global_step, " of ", *steps(),
                                              " steps are done; batches that still come change nothing")
                                     : "train: training has ended; batches that still come change nothing");
    }
    return {{}, false, /*done=*/true};
  }
  try {
    if (is_settled()) {  // a stop may have cut one off
      if (requests_.evaluation) {
        evaluate_between_steps();
      }
      evaluate_host_round();
    }
    OpenStep step = train_micro_batch(*host_->frame, {batch, samples, last});
    host_->counted = step.updated;
    if (is_settled()) {
      evaluate_host_round();
      obey(step.agreed);
    }
    if (requests_.ending && told_.insert("ending").second) {
      logger().info(concat("train: ", *requests_.ending));
    }
    return {std::move(step.loss), step.updated, ends()};
  } catch (const Stopped&) {
    end_host_training();
    throw;
  } catch (...) {
    rethrow_from_training();
  }
}

// Evaluates the datasets where `evaluate_interval` says so.
void TorchRunnerBase::evaluate_host_round() {
  if (config().evaluate_interval && evaluates_after_round()) [[unlikely]] {
    Result row;
    for (const auto& split : evaluate_splits()) {
      row.set(split, evaluate_in_training(split, /*whole=*/true));
    }
    Records(*this).append(state_.train.global_step, row);
    save_checkpoint();  // on the interval, or when the score is the best so far
  }
}

bool TorchRunnerBase::at_last_step() const {
  const auto total = is_step_mode() ? steps() : std::nullopt;
  return total && state_.train.global_step >= *total;
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
  if (host_->frame == nullptr) {
    end_host_training();  // there was nothing to do
    return results_;
  }
  const detail::Raised call(training_);
  if (!host_->ended) {  // a full disk may have made it throw below, and the program calls again
    Learners(*this).close_last(host_->counted);
    Checks(*this).models_updated(host_->splits.front());
    Result row;
    row.set(host_->splits.front(), host_->frame->finish([this](const Result&) { loop_.split.clear(); }));
    pass_ = nullptr;
    const std::int64_t epoch = state_.train.epoch++;
    host_->ended = true;
    Records(*this).append(state_.train.global_step, row);
    callbacks_.notify(&Callback::on_round_end, RoundEvent{{*this}, epoch, row});
  }
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
  if (!is_settled()) {
    if (told_.insert("evaluation in a window").second) {
      logger().warning(
          "runner.finish_evaluation: expected an evaluation between two updates, got one inside of an accumulation "
          "window, where no checkpoint can be saved: it is not part of the results that the best is chosen from; "
          "evaluate after a batch that `updated`");
    }
    return result;
  }
  if (!results_.score_split()) {
    results_.select(split, config().score_name, Records(*this).known_score_direction());
  }
  if (results_.score_split() != split && results_.scores().empty() && told_.insert("score split").second) {
    logger().warning(concat("runner.finish_evaluation: expected an evaluation of score_split ",
                            quote(*results_.score_split()), ", by which the best is chosen, got one of ",
                            quote(split)));
  }
  Result row;
  row.set(split, result);
  Records(*this).append(state_.train.global_step, row);
  save_checkpoint();  // when the score is the best so far
  return result;
}

}  // namespace danling::inline v0
