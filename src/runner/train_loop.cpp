// Training: rounds of training splits and evaluations, by epochs or by steps.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include <danling/core/suggest.hpp>
#include <danling/telemetry/logger.hpp>

#include "runner/checks.hpp"
#include "runner/learners.hpp"
#include "runner/records.hpp"
#include "runner/saver.hpp"
#include "runner/services.hpp"
#include "runner/training_call.hpp"

namespace danling::inline v0 {
namespace {

std::vector<std::string> resolve_splits(const std::vector<std::string>& requested, std::vector<std::string> available,
                                        std::string_view operation) {
  if (requested.empty()) {
    return available;
  }
  std::vector<std::string> splits(requested);
  std::sort(splits.begin(), splits.end());
  splits.erase(std::unique(splits.begin(), splits.end()), splits.end());
  for (const auto& split : splits) {
    if (std::find(available.begin(), available.end(), split) == available.end()) {
      fail<ConfigError>(operation, "expected splits among [", join(available), "], got ", quote(split),
                        did_you_mean(split, available));
    }
  }
  return splits;
}

}  // namespace

const ResultBook& TorchRunnerBase::train(const std::vector<std::string>& requested_train,
                                         const std::vector<std::string>& requested_evaluate) {
  check_not_training("runner.train");
  initialize();
  has_trained_ = true;
  Records(*this).begin();
  if (is_finished()) {
    logger().info("train: nothing to do, the run is finished");
    return results_;
  }
  const Splits splits{resolve_splits(requested_train, this->train_splits(), "runner.train"),
                      resolve_splits(requested_evaluate, this->evaluate_splits(), "runner.train")};
  Checks(*this).trainable(splits);
  prepare_training();
  Checks(*this).score_name(splits);
  const TrainingCall call(*this);
  try {
    callbacks_.notify(&Callback::on_run_begin, RunEvent{{*this}, splits.train, splits.evaluate});
    train_rounds(splits);
    callbacks_.notify(&Callback::on_run_end, RunEvent{{*this}, splits.train, splits.evaluate});
  } catch (...) {
    rethrow_from_training();
  }
  gradient_accumulators_.clear();
  split_.clear();
  return results_;
}

void TorchRunnerBase::prepare_training() {
  check<StateError>(pass_ == nullptr, "runner.train",
                    "expected no training in progress, got one; a program that called "
                    "train_on_batch ends it by finish_training()");
  Learners(*this).make();
  by_steps_ = is_step_mode();
  if (by_steps_ && !config().evaluate_interval && std::isfinite(config().patience) && told_.insert("patience").second) {
    logger().warning("patience ends no run by `steps` without evaluations on the way; set evaluate_interval");
  }
  save_interval_ = by_steps_ ? checkpoint_interval() : 0;
  Records(*this).select_score();
  Records(*this).log_guessed_score();
  Learners(*this).keep_gradient_accumulators();
  checkpoint_manager_ = &checkpoint_manager();
  requests_.ending.reset();
}

// Called where an exception is handled.
void TorchRunnerBase::rethrow_from_training() {
  try {
    throw;
  } catch (const Stopped&) {
    throw;  // it is thrown between two windows, where everything is whole
  } catch (const std::exception& error) {
    forget_window();
    callbacks_.notify(&Callback::on_exception, ExceptionEvent{{*this}, error});
    throw;
  } catch (...) {
    forget_window();
    throw;
  }
}

// After a step that threw, a save takes what there is, and says so.
void TorchRunnerBase::forget_window() {
  if (!is_settled()) {
    services().inexact = true;
    Learners(*this).forget_windows();  // a host may go on with the next batch
  }
}

// A round is each training split in turn, then an evaluation: by epochs always, by steps where it is due.
void TorchRunnerBase::train_rounds(const Splits& splits) {
  if (is_done()) {
    say_done();
    Saver(*this).save_finished_model();
    return;
  }
  Checks(*this).disk_plan();
  start_loaders(splits);
  while (rounds_left()) {
    maybe_stop(/*save=*/true);
    if (!continuing_) {
      loop_.round = Result();
    }
    callbacks_.notify(&Callback::on_round_begin, RoundEvent{{*this}, state_.train.epoch, loop_.round});
    if (!train_round(splits)) {
      break;
    }
    const bool evaluates = evaluates_after_round();
    if (evaluates) {
      evaluate_round(splits);
    }
    end_round(evaluates);
  }
  end_training_run(splits);
}

// Whether an earlier start, or a callback, leaves nothing to do. By steps the last evaluation is part of the run.
bool TorchRunnerBase::is_done() const {
  if (!is_step_mode()) {
    return state_.train.epoch >= *epochs() || requests_.ending;
  }
  const auto* last = results_.latest();
  const bool evaluated = last != nullptr && last->index >= state_.train.global_step;
  return evaluated && (state_.train.global_step >= *steps() || requests_.ending);
}

void TorchRunnerBase::say_done() {
  const auto& train = state_.train;
  logger().info(concat("train: nothing to do, ",
                       is_step_mode() ? concat(train.global_step, " of ", *steps(), " steps are done")
                                      : concat(train.epoch, " of ", *epochs(), " epochs are done"),
                       requests_.ending ? concat(" and ", *requests_.ending) : std::string()));
}

// A run may have stopped at its last step, but before the split and the round ended.
bool TorchRunnerBase::rounds_left() const {
  if (continuing_) {
    return true;
  }
  return !requests_.ending && (is_step_mode() ? state_.train.global_step < *steps() : state_.train.epoch < *epochs());
}

// By steps, passes over the data need not end where rounds do: each loader goes on where it, or the checkpoint, left
// it.
void TorchRunnerBase::start_loaders(const Splits& splits) {
  if (is_step_mode()) {
    for (const auto& split : splits.train) {
      data::LoaderBase& loader = this->loader(split);
      loader.start_epoch(std::max<std::int64_t>(loader.epoch(), 0));
    }
  }
}

// Whether training went on: by steps, passes without a single update would never end.
bool TorchRunnerBase::train_round(const Splits& splits) {
  const std::int64_t before = state_.train.global_step;
  const bool resumed_round = continuing_;
  for (std::size_t index = 0; index < splits.train.size(); ++index) {
    const std::string& split = splits.train[index];
    const bool resumed = continuing_ && loop_.split == split;
    if (!loop_.round.contains(split) && (resumed || !round_is_over())) {
      if (is_step_mode() && !resumed) {
        loop_.target_step = state_.train.global_step + step_budget(splits.train.size() - index, this->loader(split));
      }
      loop_.round.set(split, train_split(split, resumed));
    }
    maybe_stop(/*save=*/true);
  }
  continuing_ = false;
  if (is_step_mode() && state_.train.global_step == before && !resumed_round && !requests_.ending) {
    logger().warning(
        concat("train: a whole pass made no update; stopped at step ", state_.train.global_step, " of ", *steps()));
    return false;
  }
  return true;
}

// By epochs each split has its turn; by steps there may be nothing left to do, or an evaluation due.
bool TorchRunnerBase::round_is_over() const {
  return is_step_mode() && (state_.train.global_step >= *steps() || requests_.ending ||
                            (!loop_.round.empty() && evaluates_after_round()));
}

void TorchRunnerBase::evaluate_round(const Splits& splits) { evaluate_splits_of(splits, loop_.round, /*whole=*/true); }

// A split may train and be evaluated: its numbers of the evaluation then stand in the row, as in DanLing.
void TorchRunnerBase::evaluate_splits_of(const Splits& splits, Result& round, bool whole) {
  for (const auto& split : splits.evaluate) {
    const bool trains = std::find(splits.train.begin(), splits.train.end(), split) != splits.train.end();
    auto& evaluated = loop_.evaluated;
    const bool done =
        trains ? std::find(evaluated.begin(), evaluated.end(), split) != evaluated.end() : round.contains(split);
    if (!done) {
      round.set(split, evaluate_in_training(split, whole));
      if (trains) {
        evaluated.push_back(split);
      }
    }
    maybe_stop(/*save=*/true);
  }
}

void TorchRunnerBase::end_round(bool evaluated) {
  step_epoch_schedulers(loop_.round);
  if (evaluated) {
    Records(*this).append(is_step_mode() ? state_.train.global_step : state_.train.epoch, loop_.round);
  }
  callbacks_.notify(&Callback::on_round_end, RoundEvent{{*this}, state_.train.epoch, loop_.round});
  ++state_.train.epoch;
  loop_.last = is_step_mode() ? loop_.round : Result();
  loop_.round = Result();
  if (evaluated) {
    loop_.evaluated.clear();
  }
  if (evaluated && rounds_left()) {
    save_checkpoint();  // on the interval, or when the score is the best so far
  }
  if (requests_.ending) {
    logger().info(concat("train: ", *requests_.ending));
  }
}

void TorchRunnerBase::end_training_run(const Splits& splits) {
  continuing_ = false;
  const auto* last = results_.latest();
  if (is_step_mode() && (last == nullptr || last->index < state_.train.global_step)) {
    const bool whole = config().evaluate_interval.has_value();
    evaluate_splits_of(splits, loop_.last, whole);
    loop_.evaluated.clear();
    Records(*this).append(state_.train.global_step, loop_.last);
  }
  loop_.last = Result();
  save_checkpoint("latest", /*save_best=*/true, /*last_step=*/true);
  settle_checkpoints();
  Saver(*this).export_best();
  Records(*this).settle();
}

// Every epoch is evaluated; by steps, `evaluate_interval` decides.
bool TorchRunnerBase::evaluates_after_round() const {
  const auto interval = config().evaluate_interval;
  return !is_step_mode() || (interval && state_.train.global_step % *interval == 0);
}

// How far one split is trained in this round: its share of what is left, at most a pass over its data, and not beyond
// the next evaluation.
std::int64_t TorchRunnerBase::step_budget(std::size_t remaining_splits, const data::LoaderBase& loader) const {
  const std::int64_t step = state_.train.global_step;
  std::int64_t remaining = *steps() - step;
  if (const auto interval = config().evaluate_interval) {
    remaining = std::min(remaining, *interval - step % *interval);
  }
  const auto splits = static_cast<std::int64_t>(remaining_splits);
  const std::int64_t fair = std::max<std::int64_t>((remaining + splits - 1) / splits, 1);
  const auto length = loader.length();
  if (!length) {
    return fair;
  }
  const std::int64_t pass = std::max<std::int64_t>((*length + accum_steps() - 1) / accum_steps(), 1);
  return std::min({fair, pass, remaining});
}

}  // namespace danling::inline v0
