// Training: epochs or steps, splits, micro-batches.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include "runner/loop_frame.hpp"
#include "runner/services.hpp"

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
      fail<ConfigError>(operation, "expected splits among [", join(available), "], got ", quote(split));
    }
  }
  return splits;
}

template <class Action>
class Finally {
 public:
  explicit Finally(Action action) : action_(std::move(action)) {}
  ~Finally() { action_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  Action action_;
};

}  // namespace

const ResultBook& TorchRunnerBase::train(const std::vector<std::string>& requested_train,
                                         const std::vector<std::string>& requested_evaluate) {
  initialize();
  begin_recording();
  if (is_finished()) {
    logger().info("train: nothing to do, the run is finished");
    return results_;
  }
  const auto train_splits = resolve_splits(requested_train, this->train_splits(), "runner.train");
  if (train_splits.empty()) {
    std::vector<std::string> names;
    for (const SplitInfo& split : splits()) {
      names.push_back(quote(split.name));
    }
    fail<ConfigError>("runner.train", "expected a training split, got ",
                      names.empty() ? "no datasets" : concat("none among the datasets ", join(names)),
                      "; set datasets[\"train\"], or name one in train_splits");
  }
  const auto evaluate_splits = resolve_splits(requested_evaluate, this->evaluate_splits(), "runner.train");
  check<StateError>(static_cast<bool>(optimizer), "runner.train",
                    "expected an optimizer, got none; set optim.type in the config or `optimizer` in the constructor");
  logger().info(
      concat("train: ", join(train_splits), evaluate_splits.empty() ? "" : "; evaluate: ", join(evaluate_splits)));
  select_score();
  keep_gradient_accumulators();
  window_.share(parallelism().data_share().size > 1);
  checkpoint_manager_ = &checkpoint_manager();
  // After a step that throws, a save takes what there is.
  const Finally settle([this] {
    if (!is_settled()) {
      mark_inexact();
    }
    window_.reset();
  });
  if (is_step_mode()) {
    train_steps(train_splits, evaluate_splits);
  } else {
    train_epochs(train_splits, evaluate_splits);
  }
  gradient_accumulators_.clear();
  split_.clear();
  return results_;
}

void TorchRunnerBase::train_epochs(const std::vector<std::string>& train_splits,
                                   const std::vector<std::string>& evaluate_splits) {
  const std::int64_t total = *epochs();
  const auto out_of_patience = [this] {
    return loop_.rounds_without_best > 0 && static_cast<double>(loop_.rounds_without_best) >= config().patience;
  };
  if (state_.train.epoch >= total || out_of_patience()) {
    logger().info(concat("train: nothing to do, ", state_.train.epoch, " of ", total, " epochs are done",
                         out_of_patience() ? " and early stopping has ended the run" : ""));
    save_finished_model();
    return;
  }
  while (state_.train.epoch < total) {
    maybe_stop(/*save=*/true);
    if (!continuing_) {
      loop_.round = Result();
    }
    for (const auto& split : train_splits) {
      if (!loop_.round.contains(split)) {
        loop_.round.set(split, train_epoch(split));
      }
      maybe_stop(/*save=*/true);
    }
    continuing_ = false;
    for (const auto& split : evaluate_splits) {
      if (!loop_.round.contains(split)) {
        loop_.round.set(split, evaluate_in_training(split, /*whole=*/true));
      }
      maybe_stop(/*save=*/true);
    }
    step_epoch_scheduler(loop_.round);
    const std::int64_t epoch = state_.train.epoch;
    append_result(epoch, loop_.round);
    state_.train.epoch = epoch + 1;
    loop_.rounds_without_best = results_.is_improved() ? 0 : loop_.rounds_without_best + 1;
    loop_.round = Result();
    const bool last = state_.train.epoch == total || out_of_patience();
    if (!last) {
      save_checkpoint();  // on the interval, or when the score is the best so far
    }
    if (out_of_patience()) {
      logger().info(
          concat("train: early stop, ", loop_.rounds_without_best, " epochs without a better ", config().score_name));
      break;
    }
  }
  save_checkpoint("latest", /*save_best=*/true, /*last_step=*/true);
  settle_checkpoints();
  settle_records();
}

Result TorchRunnerBase::train_epoch(std::string_view split) {
  data::LoaderBase& loader = this->loader(split);
  const bool resumed = continuing_ && loop_.split == split;
  detail::LoopFrame frame(*this, split, loader, loader.length());
  begin_train_split(frame, resumed);
  loader.start_epoch(state_.train.epoch);
  while (loader.next()) {
    const OpenStep step = train_micro_batch(frame, {batch_of(loader), loader.batch_size(), loader.is_last()});
    if (step.place.closes) {  // never inside an accumulation window
      maybe_stop(/*save=*/true, step.agreed.stop);
    }
  }
  loop_.split.clear();
  return frame.finish();
}

void TorchRunnerBase::begin_train_split(detail::LoopFrame& frame, bool resumed) {
  enter(RunnerMode::train, frame.split());
  window_.reset();
  zero_grad();
  if (resumed) {
    // The meters, metrics and losses go on where the checkpoint left them.
    meters.load_state_dict(saved_meters_);
    if (active_metrics_ != nullptr && !saved_metrics_.is_null()) {
      try {
        active_metrics_->load_state_dict(saved_metrics_);
      } catch (const StateError& error) {
        // What is measured may change over a stop; what is trained does not depend on it.
        services().logger.warning(concat("the metrics are not those of the checkpoint and begin anew in the middle of ",
                                         frame.split(), ": ", error.what()));
        active_metrics_->reset();
      }
    }
    if (criterion.losses() != nullptr && !saved_losses_.is_null()) {
      criterion.losses()->load_state_dict(saved_losses_);
    }
    frame.start(is_step_mode() ? state_.train.global_step - loop_.first_step : loop_.iteration);
  } else {
    loop_.split = frame.split();
    loop_.iteration = 0;
    loop_.first_step = state_.train.global_step;
    frame.start();
  }
  continuing_ = false;
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
  const std::int64_t accum = accum_steps_;
  const std::int64_t index = accum <= 1 ? 0 : state_.train.micro_step % accum;
  const bool closes = index + 1 >= accum || micro_batch.last;
  window_.begin_micro_batch(normalizer, /*alone=*/index == 0 && closes);
  return {.place = {.index = index, .closes = closes, .weight = window_.weight()}};
}

TorchRunnerBase::OpenStep TorchRunnerBase::train_micro_batch(detail::LoopFrame& frame, const MicroBatch& micro_batch) {
  frame.data_ready();
  const auto normalizer = loss_normalizer(micro_batch.batch);
  OpenStep step = open_step(micro_batch, normalizer);
  StepOutput output;
  {
    const StepScope scope(*this, step);
    output = run_train_step(micro_batch.batch);
  }
  if (step.steps != 1) [[unlikely]] {
    fail<StateError>("runner.train_step", "expected one call of step() for each micro-batch, got ", step.steps,
                     "; an override of train_step must call it exactly once");
  }

  ++loop_.iteration;
  if (scheduler) {
    frame.lr().update(optimizer->param_groups().front().lr);
  }
  if (output.loss.defined() && normalizer.value_or(1) > 0) {
    frame.loss().update(output.loss, normalizer.value_or(1));
  }
  frame.observe(micro_batch.samples);

  bool due = false;
  if (!is_step_mode()) {
    frame.log(loop_.iteration);
  } else if (step.updated) {
    frame.log(state_.train.global_step - loop_.first_step);
    const std::int64_t interval = checkpoint_interval();
    due = interval > 0 && state_.train.global_step % interval == 0;
  }
  if (due) {
    save_checkpoint();
  }
  if (step.place.closes && !services().deferred_saves.empty()) [[unlikely]] {
    save_deferred();
  }
  return step;
}

void TorchRunnerBase::train_steps(const std::vector<std::string>& train_splits,
                                  const std::vector<std::string>& evaluate_splits) {
  const auto total = steps();
  check<ConfigError>(total.has_value(), "runner.train",
                     "expected a number of steps, got none; set `steps` or `epochs` in the config");
  const auto* done = results_.latest();
  if (state_.train.global_step >= *total && done != nullptr && done->index >= state_.train.global_step) {
    logger().info(concat("train: nothing to do, ", state_.train.global_step, " of ", *total, " steps are done"));
    save_finished_model();
    return;
  }
  // Passes over the data need not end where rounds do: each loader goes on where it, or the checkpoint, left it.
  for (const auto& split : train_splits) {
    data::LoaderBase& loader = this->loader(split);
    loader.start_epoch(std::max<std::int64_t>(loader.epoch(), 0));
  }
  // A run may have stopped at its last step, but before the split and the round ended.
  while (state_.train.global_step < *total || continuing_) {
    maybe_stop(/*save=*/true);
    if (!continuing_) {
      loop_.round = Result();
    }
    const std::int64_t before = state_.train.global_step;
    const bool resumed_round = continuing_;
    for (std::size_t index = 0; index < train_splits.size(); ++index) {
      const std::string& split = train_splits[index];
      const bool resumed = continuing_ && loop_.split == split;
      if (loop_.round.contains(split) || (state_.train.global_step >= *total && !resumed)) {
        continue;
      }
      data::LoaderBase& loader = this->loader(split);
      if (!resumed) {
        loop_.target_step = state_.train.global_step +
                            step_budget(*total - state_.train.global_step, train_splits.size() - index, loader);
      }
      detail::LoopFrame frame(*this, split, loader,
                              loop_.target_step - (resumed ? loop_.first_step : state_.train.global_step));
      begin_train_split(frame, resumed);
      bool restarted = false;
      while (state_.train.global_step < loop_.target_step) {
        if (!loader.next()) {
          check<DataError>(!restarted, "runner.train", "expected batches in split ", quote(split), ", got none");
          // The next pass begins where this one ended; a split may be passed over many times in one round.
          loader.start_epoch(loader.epoch() + 1);
          restarted = true;
          continue;
        }
        restarted = false;
        const OpenStep step = train_micro_batch(frame, {batch_of(loader), loader.batch_size(), loader.is_last()});
        if (step.place.closes) {
          maybe_stop(/*save=*/true, step.agreed.stop);
        }
      }
      loop_.split.clear();
      loop_.round.set(split, frame.finish());
    }
    continuing_ = false;
    if (state_.train.global_step == before && !resumed_round) {
      logger().warning(concat("train: a whole pass made no update; stopped at step ", before, " of ", *total));
      break;
    }
    step_epoch_scheduler(loop_.round);
    loop_.last = std::exchange(loop_.round, Result());
    ++state_.train.epoch;
  }
  continuing_ = false;
  for (const auto& split : evaluate_splits) {
    if (!loop_.last.contains(split)) {
      loop_.last.set(split, evaluate_in_training(split, /*whole=*/false));
    }
    maybe_stop(/*save=*/true);
  }
  append_result(state_.train.global_step, std::exchange(loop_.last, Result()));
  save_checkpoint("latest", /*save_best=*/true, /*last_step=*/true);
  settle_checkpoints();
  settle_records();
}

std::int64_t TorchRunnerBase::step_budget(std::int64_t remaining_steps, std::size_t remaining_splits,
                                          const data::LoaderBase& loader) {
  const auto splits = static_cast<std::int64_t>(remaining_splits);
  const std::int64_t fair = std::max<std::int64_t>((remaining_steps + splits - 1) / splits, 1);
  const auto length = loader.length();
  if (!length) {
    return fair;
  }
  const std::int64_t pass = std::max<std::int64_t>((*length + accum_steps() - 1) / accum_steps(), 1);
  return std::min({fair, pass, remaining_steps});
}

}  // namespace danling::inline v0
