// What a run must not pass over in silence, looked at where numbers are read anyway.
#include <danling/runner/torch_runner_base.hpp>

#include <cmath>

#include <danling/telemetry/logger.hpp>

#include "runner/loop_frame.hpp"

namespace danling::inline v0 {
namespace {

bool is_empty(const Result& counts) {
  for (const auto& [name, value] : counts) {
    const auto* number = std::get_if<double>(&value);
    const auto* nested = std::get_if<Result>(&value);
    if ((number != nullptr && *number > 0) || (nested != nullptr && !is_empty(*nested)) ||
        (number == nullptr && nested == nullptr)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void TorchRunnerBase::check_numbers(const detail::LoopFrame& frame, const Result& averages) {
  const double* loss = averages.number("loss");
  if (loss != nullptr && !std::isfinite(*loss)) {
    const std::string place = concat("split ", quote(frame.split()), ", epoch ", state_.train.epoch + 1, ", by step ",
                                     state_.train.global_step);
    if (mode_ == RunnerMode::train && config().on_nonfinite == "stop") {
      fail<NonFiniteError>("runner.loss", "expected a finite loss, got ", *loss, " in ", place,
                           " (on_nonfinite: stop); the checkpoints before are whole");
    }
    if (told_.insert(concat("loss ", frame.split(), state_.train.epoch)).second) {
      logger().warning(concat("the loss is not finite: ", *loss, " in ", place,
                              mode_ == RunnerMode::train ? "; on_nonfinite: stop ends such a run" : ""));
    }
  }
  check_schedules();
  if (skipped_updates_ > skips_told_) {
    logger().warning(concat("gradients were not finite: ", skipped_updates_ - skips_told_,
                            " updates were skipped by step ", state_.train.global_step, ", ", skipped_updates_,
                            " in all (skip_nonfinite_grad)"));
    skips_told_ = skipped_updates_;
  }
}

void TorchRunnerBase::check_schedules() {
  for (const Learner& learner : learners_) {
    if (learner.scheduler != nullptr && learner.scheduler->ran_out() &&
        told_.insert(concat("schedule ", learner.name)).second) {
      const std::string section = learner.name.empty() ? "sched" : concat("sched.", learner.name);
      logger().warning(concat("the schedule of the learning rate is over at step ", state_.train.global_step,
                              ", and training goes on with ", learner.optimizer->param_groups().front().lr, "; set ",
                              section, ".total_steps to the length of the run"));
    }
  }
}

void TorchRunnerBase::check_metrics_fed() {
  if (active_metrics_ != nullptr && is_empty(active_metrics_->count()) &&
      told_.insert(concat("metrics ", split_)).second) {
    logger().warning(concat("the metrics of split ", quote(split_), " got no values; call update_metrics in your own ",
                            mode_ == RunnerMode::train ? "train_step" : "evaluate_step"));
  }
}

}  // namespace danling::inline v0
