// train(): its preparation, events and errors.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include <danling/core/detail/suggest.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

#include <distributed/watch.hpp>
#include <runner/agreed_error.hpp>
#include <runner/agreement.hpp>
#include <runner/averages.hpp>
#include <runner/checks.hpp>
#include <runner/fault_tolerance.hpp>
#include <runner/flag_scope.hpp>
#include <runner/learners.hpp>
#include <runner/loss_policy.hpp>
#include <runner/process_config.hpp>
#include <runner/records.hpp>
#include <runner/rounds.hpp>
#include <runner/saver.hpp>
#include <runner/schedules.hpp>
#include <runner/services.hpp>
#include <runner/step_tapes.hpp>
#include <runner/training.hpp>
#include <runner/watchdog.hpp>
#include <runner/watched_loop.hpp>
#include <runner/windows.hpp>

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

const ResultHistory& TorchRunnerBase::train(const std::vector<std::string>& requested_train,
                                            const std::vector<std::string>& requested_evaluate) {
  Internals::Checks(*this).not_training("runner.train");
  initialize();
  Internals::Checks(*this).check_tools_called("runner.train");
  const detail::FlagScope call(training_);
  has_trained_ = true;
  Internals::Training training(*this);
  bool began = false;
  try {
    if (fault_ != nullptr && fault_->joins) {
      Internals::FaultTolerance(*this).join();
    }
    if (is_finished()) {
      Internals::Records(*this).begin();
      logger().info("train: nothing to do, the run is finished");
      return results_;
    }
    const Internals::Splits splits{resolve_splits(requested_train, this->train_splits(), "runner.train"),
                                   resolve_splits(requested_evaluate, this->evaluate_splits(), "runner.train")};
    Internals::Checks(*this).trainable(splits);
    if (fault_ == nullptr || !fault_->joined) {
      Internals::Checks(*this).same_data(splits);
    }
    Internals::Records(*this).select_score();
    Internals::Checks(*this).score_name(splits);
    // After the checks, since it moves the files of an earlier attempt; before prepare(), since a run that takes over
    // files saves the state that it has read.
    Internals::Records(*this).begin();
    training.prepare();
    Internals::Checks(*this).metric_names("runner.train");  // they may have been set after initialize()
    Internals::Checks(*this).monitors();
    Internals::Schedules(*this).check_evaluations();
    began = true;
    const Internals::WatchedLoop watched(*this);
    callbacks_.notify(&Callback::on_run_begin, "on_run_begin", RunEvent{{*this}, splits.train, splits.evaluate});
    run_rounds(splits);
    callbacks_.notify(&Callback::on_run_end, "on_run_end", RunEvent{{*this}, splits.train, splits.evaluate});
  } catch (...) {
    training.rethrow(began);
  }
  if (tapes_ != nullptr) {
    tapes_->log_report();
  }
  gradient_accumulators_.clear();
  split_.clear();
  return results_;
}

void TorchRunnerBase::begin_rounds() {
  if (loss_policy_ != nullptr) {
    Internals::LossPolicy(*this).keep_beginning();
  }
  if (fault_ != nullptr) {
    Internals::FaultTolerance(*this).begin_training();
  }
}

void TorchRunnerBase::run_rounds(const Internals::Splits& splits) {
  bool begins = fault_ == nullptr || !fault_->joined;
  bool rolls_back = false;
  std::optional<std::string> regroups;
  for (;;) {
    if (regroups) {
      Internals::FaultTolerance(*this).regroup(*std::exchange(regroups, std::nullopt));
    }
    try {
      if (std::exchange(begins, false)) {
        begin_rounds();
      }
      if (std::exchange(rolls_back, false)) {
        Internals::LossPolicy(*this).roll_back();
      }
      Internals::Rounds(*this, splits).run();
      return;
    } catch (const detail::RollBack&) {
      rolls_back = true;
    } catch (const detail::Regroup&) {
      regroups = "";
    } catch (const DistributedError& error) {
      if (fault_ == nullptr || dynamic_cast<const detail::LocalError*>(&error) != nullptr) {
        throw;
      }
      regroups = error.what();
    }
  }
}

void TorchRunnerBase::Internals::Training::prepare(bool hosted) {
  check<StateError>(runner_.pass_ == nullptr && runner_.host_ == nullptr, "runner.train",
                    "expected no loop of the program in progress, got one; call finish_evaluation() after "
                    "evaluate_on_batch, finish_training() after train_on_batch");
  continue_after_error();
  if (runner_.fault_ == nullptr || !std::exchange(runner_.fault_->prepared, false)) {
    prepare_steps();
  }
  Checks(runner_).shards("runner.train", !hosted);
  if (runner_.loss_policy_ != nullptr) {
    LossPolicy(runner_).prepare(hosted);
  }
  runner_.save_interval_ =
      runner_.by_steps_ && !runner_.config().checkpoint.load_only ? runner_.checkpoint_interval() : 0;
  Records(runner_).select_score();
  Records(runner_).log_guessed_score();
  Checks(runner_).log_schedules();
  runner_.requests_.ended = std::exchange(runner_.loop_.ended, std::nullopt);
  runner_.requests_.end.reset();
  runner_.time_limit_.restart();
}

void TorchRunnerBase::Internals::Training::prepare_steps() {
  runner_.is_single_process_ = runner_.group().alone();
  Learners(runner_).make();
  Averages(runner_).prepare();
  runner_.by_steps_ = runner_.is_step_mode();
  runner_.computes_shards_ = runner_.parallelism().computes_shards();
  if (const auto seconds = runner_.config().comm.train_timeout_seconds;
      seconds && !runner_.is_single_process_ && runner_.fault_ == nullptr) {
    runner_.train_timeout_ = detail::timeout_of(*seconds);
  }
  runner_.joins_updates_ = !runner_.is_single_process_ && runner_.parallelism().sums_gradients();
  Learners(runner_).keep_gradient_accumulators();
  std::vector<optim::Optimizer*> optimizers;
  for (const Learner& learner : runner_.learners_) {
    optimizers.push_back(learner.optimizer.get());
  }
  runner_.parallelism().prepare_optimizers(optimizers);
  runner_.checkpoint_manager_ = &runner_.checkpoint_manager();
}

// The completed splits of the round stay completed. The pass that an error ended restarts.
void TorchRunnerBase::Internals::Training::continue_after_error() {
  LoopState& loop = runner_.loop_;
  if (loop.continuing || runner_.stop_requested()) {
    return;
  }
  loop.continuing = !loop.round.empty();
  if (!loop.split.empty()) {
    runner_.logger().warning(concat("runner.train: an error ended the pass over split ", quote(loop.split), " after ",
                                    loop.iteration,
                                    " batches; it restarts with the current parameters (call load_checkpoint first to "
                                    "resume from a checkpoint)"));
    loop.split.clear();
  }
}

void TorchRunnerBase::Internals::Training::save_last() {
  Saver(runner_).save_last();
  if (runner_.fault_ != nullptr) {
    return;
  }
  const Group& group = runner_.group();
  const auto timeout = group.timeout();
  if (group.abort_reaches_others()) {
    group.set_timeout(detail::longest_timeout);
  }
  const detail::WatchedSave watched(*runner_.services().progress);
  Agreement(runner_).agree();
  group.set_timeout(timeout);
}

void TorchRunnerBase::Internals::Training::rethrow(bool began) {
  try {
    throw;
  } catch (const Stopped&) {
    throw;  // thrown between two windows: no partial state
  } catch (const DistributedError& error) {
    drop_windows();
    Agreement(runner_).report_failure(error);
    throw;
  } catch (const std::exception& error) {
    drop_windows();
    if (began) {
      notify(error);
    }
    if (!runner_.group().alone()) {
      runner_.logger().warning(
          concat("an error ends this process: ", error.what()));  // logged before it waits for the others
    }
    Agreement(runner_).report_failure(error);
    throw;
  } catch (...) {
    drop_windows();
    Agreement(runner_).report_failure(detail::unknown_error);
    throw;
  }
}

void TorchRunnerBase::Internals::Training::notify(const std::exception& error) {
  try {
    runner_.callbacks_.notify(&Callback::on_exception, "on_exception", ExceptionEvent{{runner_}, error});
  } catch (const std::exception& another) {
    runner_.logger().warning(another.what());  // the first error is thrown
  }
}

// The next save warns that a step threw before it. A program's loop may continue with the next batch, which opens new
// windows.
void TorchRunnerBase::Internals::Training::drop_windows() {
  if (!runner_.is_settled()) {
    runner_.services().has_partial_step = true;
    Windows(runner_).drop();
  }
  Windows(runner_).align();
}

bool TorchRunnerBase::Internals::Training::evaluation_is_due() const {
  if (!runner_.is_step_mode()) {
    return true;
  }
  const auto interval = runner_.config().evaluate_interval;
  const auto* last = runner_.results_.latest();
  return interval && runner_.state_.train.global_step / *interval > (last != nullptr ? last->index : 0) / *interval;
}

}  // namespace danling::inline v0
