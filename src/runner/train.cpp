// train(): what it begins with and how it ends.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include <danling/core/suggest.hpp>
#include <danling/telemetry/logger.hpp>

#include "runner/checks.hpp"
#include "runner/learners.hpp"
#include "runner/raised.hpp"
#include "runner/records.hpp"
#include "runner/rounds.hpp"
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
  const detail::Raised call(training_);
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
  try {
    callbacks_.notify(&Callback::on_run_begin, RunEvent{{*this}, splits.train, splits.evaluate});
    Rounds(*this, splits).run();
    callbacks_.notify(&Callback::on_run_end, RunEvent{{*this}, splits.train, splits.evaluate});
  } catch (...) {
    rethrow_from_training();
  }
  gradient_accumulators_.clear();
  split_.clear();
  return results_;
}

void TorchRunnerBase::prepare_training() {
  check<StateError>(pass_ == nullptr && host_ == nullptr, "runner.train",
                    "expected no loop of the program's own in progress, got one; finish_evaluation() ends what "
                    "evaluate_on_batch began, and finish_training() what train_on_batch did");
  Learners(*this).make();
  by_steps_ = is_step_mode();
  alone_ = group().alone();
  save_interval_ = by_steps_ ? checkpoint_interval() : 0;
  Records(*this).select_score();
  Records(*this).log_guessed_score();
  Learners(*this).keep_gradient_accumulators();
  checkpoint_manager_ = &checkpoint_manager();
  requests_.ending.reset();
  requests_.end.reset();
}

// Called where an exception is handled.
void TorchRunnerBase::rethrow_from_training() {
  try {
    throw;
  } catch (const Stopped&) {
    throw;  // it is thrown between two windows, where everything is whole
  } catch (const DistributedError&) {
    forget_window();
    throw;  // the others are gone, or know
  } catch (const std::exception& error) {
    forget_window();
    try {
      callbacks_.notify(&Callback::on_exception, ExceptionEvent{{*this}, error});
    } catch (const std::exception& another) {
      logger().warning(another.what());  // the first one is thrown
    }
    if (!group().alone()) {
      logger().warning(concat("an error ends this process: ", error.what()));  // before it waits for the others
    }
    tell_others();
    throw;
  } catch (...) {
    forget_window();
    tell_others();
    throw;
  }
}

// The others hear it where they next wait for a message of this process: a window's end, a line of the log.
void TorchRunnerBase::tell_others() {
  if (!group().alone()) {
    try {
      group().all_gather(std::string(failed_message));
    } catch (const std::exception& error) {
      logger().warning(concat("the other processes could not be told of an error: ", error.what()));
    }
  }
}

// After a step that threw, a save takes what there is, and says so.
void TorchRunnerBase::forget_window() {
  if (!is_settled()) {
    services().inexact = true;
    Learners(*this).forget_windows();  // a host may go on with the next batch
  }
}

// Every epoch is evaluated; by steps, `evaluate_interval` decides, where the windows of several models are all closed.
bool TorchRunnerBase::evaluates_after_round() const {
  if (!is_step_mode()) {
    return true;
  }
  const auto interval = config().evaluate_interval;
  const auto* last = results_.latest();
  return interval && state_.train.global_step / *interval > (last != nullptr ? last->index : 0) / *interval;
}

}  // namespace danling::inline v0
