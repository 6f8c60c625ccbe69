// Rounds of training splits and evaluations, by epochs or by steps.
#include <runner/rounds.hpp>

#include <algorithm>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include <runner/agreement.hpp>
#include <runner/averages.hpp>
#include <runner/checks.hpp>
#include <runner/evaluator.hpp>
#include <runner/records.hpp>
#include <runner/saver.hpp>
#include <runner/schedules.hpp>
#include <runner/train_pass.hpp>
#include <runner/training.hpp>

namespace danling::inline v0 {

// A round trains each split in turn, then evaluates: in epoch mode always, in step mode when due.
void TorchRunnerBase::Internals::Rounds::run() {
  Agreement(runner_).agree();  // on requests of on_run_begin
  if (is_done()) {
    log_done();
    Saver(runner_).save_finished_model();
    return;
  }
  Checks(runner_).disk_plan();
  start_loaders();
  while (is_unfinished()) {
    Agreement(runner_).stop_if_requested(/*save=*/true);
    if (!loop_.continuing) {
      loop_.round = Result();
      loop_.evaluated.clear();
    }
    runner_.callbacks_.notify(&Callback::on_round_begin, "on_round_begin",
                              RoundEvent{{runner_}, train_.epoch, loop_.round});
    if (!train()) {
      break;
    }
    Averages(runner_).end_epoch();
    const bool evaluates = Training(runner_).evaluation_is_due();
    if (evaluates) {
      evaluate(loop_.round, /*whole=*/true);
    }
    end_round(evaluates);
  }
  end();
}

// True if nothing is left to do after an earlier attempt or a callback's request. In step mode the run includes its
// final evaluation.
bool TorchRunnerBase::Internals::Rounds::is_done() const {
  if (loop_.continuing) {
    return false;
  }
  if (!by_steps_) {
    return train_.epoch >= *runner_.epochs() || runner_.requests_.ended;
  }
  const auto* last = runner_.results_.latest();
  const bool evaluated = last != nullptr && last->index >= train_.global_step;
  return evaluated && (train_.global_step >= *runner_.steps() || runner_.requests_.ended);
}

void TorchRunnerBase::Internals::Rounds::log_done() const {
  runner_.logger().info(concat("train: nothing to do, ",
                               by_steps_ ? concat(train_.global_step, " of ", *runner_.steps(), " steps are done")
                                         : concat(train_.epoch, " of ", *runner_.epochs(), " epochs are done"),
                               runner_.requests_.ended ? concat(" and ", *runner_.requests_.ended, "; raise ",
                                                                by_steps_ ? "steps" : "epochs", " to continue")
                                                       : std::string()));
}

// A run may have stopped at its last step, but before the split and the round ended.
bool TorchRunnerBase::Internals::Rounds::is_unfinished() const {
  if (loop_.continuing) {
    return true;
  }
  return !runner_.requests_.ended &&
         (by_steps_ ? train_.global_step < *runner_.steps() : train_.epoch < *runner_.epochs());
}

// In step mode, passes and rounds need not end together: each loader continues at its position or the checkpoint's.
void TorchRunnerBase::Internals::Rounds::start_loaders() {
  if (by_steps_) {
    for (const auto& split : splits_.train) {
      runner_.loader(split).ensure_started();
    }
  }
}

// Returns false if nothing was updated: in step mode such a run would never end.
bool TorchRunnerBase::Internals::Rounds::train() {
  const std::int64_t before = train_.global_step;
  const bool resumed_round = loop_.continuing;
  const std::size_t count = splits_.train.size();
  // When evaluations shorten rounds, each round begins with another split, so that all splits are trained.
  const std::size_t first = runner_.config().evaluate_interval ? static_cast<std::size_t>(train_.epoch) % count : 0;
  for (std::size_t index = 0; index < count; ++index) {
    const std::string& split = splits_.train[(first + index) % count];
    const bool resumed = loop_.continuing && loop_.split == split;
    if (!loop_.round.contains(split) && (resumed || !is_over())) {
      if (by_steps_ && !resumed) {
        loop_.target_step = train_.global_step + step_budget(count - index, runner_.loader(split));
      }
      TrainPass(runner_).run(split, resumed);
    }
    Agreement(runner_).stop_if_requested(/*save=*/true);
  }
  loop_.continuing = false;
  if (by_steps_ && train_.global_step == before && !resumed_round && !runner_.requests_.ended) {
    runner_.logger().warning(
        concat("train: a whole pass made no update; stopped at step ", train_.global_step, " of ", *runner_.steps()));
    return false;
  }
  return true;
}

// In epoch mode every split is trained; in step mode the round ends when the run does or an evaluation is due.
bool TorchRunnerBase::Internals::Rounds::is_over() const {
  return by_steps_ && (train_.global_step >= *runner_.steps() || runner_.requests_.ended ||
                       (!loop_.round.empty() && Training(runner_).evaluation_is_due()));
}

// For a split that trains and is evaluated, the row holds the results of the evaluation, as in DanLing.
void TorchRunnerBase::Internals::Rounds::evaluate(Result& round, bool whole) {
  for (const auto& split : splits_.evaluate) {
    const bool trains = std::find(splits_.train.begin(), splits_.train.end(), split) != splits_.train.end();
    auto& evaluated = loop_.evaluated;
    const bool done =
        trains ? std::find(evaluated.begin(), evaluated.end(), split) != evaluated.end() : round.contains(split);
    if (!done) {
      round.set(split, Evaluator(runner_).evaluate_in_training(split, whole));
      if (trains) {
        evaluated.push_back(split);
      }
    }
    Agreement(runner_).stop_if_requested(/*save=*/true);
  }
}

// Advances the state before it notifies callbacks, which may save it.
void TorchRunnerBase::Internals::Rounds::end_round(bool evaluated) {
  const Result round = std::exchange(loop_.round, Result());
  const std::int64_t epoch = train_.epoch++;
  for (const auto& warning : Schedules(runner_).step_epoch(round, evaluated)) {
    if (runner_.warned_.insert(warning).second) {
      runner_.logger().warning(warning);
    }
  }
  Averages(runner_).begin_schedules();
  loop_.last = by_steps_ && !evaluated ? round : Result();
  if (evaluated) {
    loop_.evaluated.clear();
    Records(runner_).append(by_steps_ ? train_.global_step : epoch, round);
  }
  runner_.callbacks_.notify(&Callback::on_round_end, "on_round_end", RoundEvent{{runner_}, epoch, round});
  Agreement(runner_).agree();
  if (evaluated && is_unfinished()) {
    runner_.save_checkpoint();  // on the interval, or when the score is the best so far
  }
  if (runner_.requests_.ended) {
    runner_.logger().info(concat("train: ", *runner_.requests_.ended));
  }
}

void TorchRunnerBase::Internals::Rounds::end() {
  loop_.continuing = false;
  const auto* last = runner_.results_.latest();
  if (by_steps_ && (last == nullptr || last->index < train_.global_step)) {
    const bool whole = runner_.config().evaluate_interval.has_value();
    evaluate(loop_.last, whole);
    loop_.evaluated.clear();
    Records(runner_).append(train_.global_step, loop_.last);
  }
  loop_.last = Result();
  Averages(runner_).end();
  Averages(runner_).estimate_statistics();  // the export needs them, even if no evaluation did
  Training(runner_).save_last();
}

// Updates of one split in this round: its share of the remaining ones, limited to a pass over its data and to the next
// evaluation.
std::int64_t TorchRunnerBase::Internals::Rounds::step_budget(std::size_t remaining_splits,
                                                             const data::LoaderBase& loader) const {
  const std::int64_t step = train_.global_step;
  std::int64_t remaining = *runner_.steps() - step;
  if (const auto interval = runner_.config().evaluate_interval) {
    remaining = std::min(remaining, *interval - step % *interval);
  }
  const auto splits = static_cast<std::int64_t>(remaining_splits);
  const std::int64_t fair = std::max<std::int64_t>((remaining + splits - 1) / splits, 1);
  const auto length = loader.num_steps();
  if (!length) {
    return fair;
  }
  const std::int64_t pass = std::max<std::int64_t>(Schedules(runner_).window_lengths().steps_in(*length), 1);
  return std::min({fair, pass, remaining});
}

}  // namespace danling::inline v0
