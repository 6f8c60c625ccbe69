#include <runner/host_loop.hpp>

#include <functional>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include <runner/checks.hpp>
#include <runner/flag_scope.hpp>
#include <runner/learners.hpp>
#include <runner/records.hpp>
#include <runner/saver.hpp>
#include <runner/schedules.hpp>
#include <runner/services.hpp>
#include <runner/step_tapes.hpp>
#include <runner/train_pass.hpp>
#include <runner/training.hpp>
#include <runner/watchdog.hpp>
#include <runner/watched_loop.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {

// ---- training -------------------------------------------------------------------------------------------------------

void TorchRunnerBase::Internals::HostLoop::begin(TorchRunnerBase& runner, const std::string& split) {
  static constexpr auto operation = "runner.train_on_batch";
  Checks(runner).check_tools_called(operation);
  runner.has_trained_ = true;
  Training training(runner);
  bool began = false;
  try {
    check<ConfigError>(
        !runner.epochs(), operation,
        "expected `steps`, or neither, in a loop of the program, got epochs=", runner.epochs().value_or(0));
    const auto host = std::make_shared<HostLoop>(runner);
    host->splits = {split};
    LoopState& loop = runner.loop_;
    if (runner.is_finished() || (host->is_at_last_step() && loop.split.empty())) {
      Records(runner).begin();
      runner.host_ = host;  // an earlier attempt has already ended it
      return;
    }
    check<ConfigError>(!runner.config().evaluate_interval || !runner.evaluate_splits().empty(), operation,
                       "expected a dataset to evaluate for evaluate_interval, got none; set one, or evaluate by "
                       "evaluate_on_batch");
    Checks(runner).same_loop(operation, split);
    Records(runner).begin();
    training.prepare(/*hosted=*/true);
    Schedules(runner).check_host_loop();
    Checks(runner).monitors();
    began = true;
    runner.callbacks_.notify(&Callback::on_run_begin, "on_run_begin", RunEvent{{runner}, host->splits, {}});
    runner.callbacks_.notify(&Callback::on_round_begin, "on_round_begin",
                             RoundEvent{{runner}, runner.state_.train.epoch, loop.round});
    const bool resumed = loop.continuing && loop.split == split;
    const std::int64_t step = runner.state_.train.global_step;
    const auto steps = runner.steps();
    host->frame = std::make_unique<detail::LoopFrame>(
        runner, split, steps ? std::optional(*steps - (resumed ? loop.first_step : step)) : std::nullopt);
    runner.host_ = host;
    runner.pass_ = host->frame.get();
    TrainPass(runner).begin(*host->frame, resumed);
    loop.target_step = steps.value_or(0);
    Checks(runner).disk_plan();
  } catch (...) {
    end(runner);
    training.rethrow(began);
  }
}

void TorchRunnerBase::Internals::HostLoop::end(TorchRunnerBase& runner) {
  runner.pass_ = nullptr;
  runner.host_.reset();
  runner.gradient_accumulators_.clear();
  runner.split_.clear();
}

bool TorchRunnerBase::Internals::HostLoop::is_at_last_step() const {
  const auto total = runner_.is_step_mode() ? runner_.steps() : std::nullopt;
  return total && runner_.state_.train.global_step >= *total;
}

bool TorchRunnerBase::Internals::HostLoop::is_done() const {
  return frame == nullptr || ended || is_at_last_step() || (runner_.requests_.ended && runner_.is_settled());
}

void TorchRunnerBase::Internals::HostLoop::evaluate_if_due() {
  if (runner_.config().evaluate_interval && Training(runner_).evaluation_is_due()) [[unlikely]] {
    Result row;
    for (const auto& split : runner_.evaluate_splits()) {
      row.set(split, Evaluator(runner_).evaluate_in_training(split, /*whole=*/true));
    }
    append(row);
  }
}

void TorchRunnerBase::Internals::HostLoop::append(const Result& row) {
  if (frame != nullptr) {
    Schedules(runner_).step_evaluation(row);
  }
  Records(runner_).append(runner_.state_.train.global_step, row);
  runner_.save_checkpoint();
}

TorchRunnerBase::BatchReport TorchRunnerBase::train_on_batch_impl(data::BatchRef batch, std::int64_t samples,
                                                                  const std::string& split, bool last) {
  static constexpr auto operation = "runner.train_on_batch";
  Internals::Checks(*this).not_training(operation);
  initialize();
  const detail::FlagScope call(training_);
  if (host_ == nullptr) {
    Internals::HostLoop::begin(*this, split);
  }
  const Internals::WatchedLoop watched(*this);
  profiled_ = detail::records_ranges();
  check<StateError>(host_->evaluation == nullptr, operation,
                    "expected finish_evaluation() after evaluate_on_batch, got a training batch");
  check<ConfigError>(split == host_->splits.front(), operation, "expected batches of split ",
                     quote(host_->splits.front()), " until finish_training(), got one of ", quote(split));
  try {
    Internals::TrainPass pass(*this);
    if (host_->frame != nullptr && !host_->ended && is_settled()) {  // a stop or an error may have interrupted one
      if (requests_.evaluation) {
        pass.evaluate();
      }
      host_->evaluate_if_due();
    }
    if (host_->is_done()) {
      if (warned_.insert("steps are done").second) {
        logger().info(is_finished()              ? std::string("train: nothing to do, the run is finished")
                      : host_->is_at_last_step() ? concat("train: ", state_.train.global_step, " of ", *steps(),
                                                          " steps are done; further batches are ignored")
                                                 : "train: training has ended; further batches are ignored");
      }
      return {{}, false, /*done=*/true};
    }
    Internals::OpenStep step = pass.train(*host_->frame, {batch, samples, last});
    if (is_settled()) {
      host_->evaluate_if_due();
      pass.apply_requests(step.agreed);
    }
    if (requests_.ended && warned_.insert("ending").second) {
      logger().info(concat("train: ", *requests_.ended));
    }
    return {std::move(step.loss), step.updated, host_->is_done()};
  } catch (const Stopped&) {
    Internals::HostLoop::end(*this);
    throw;
  } catch (...) {
    Internals::Training(*this).rethrow();
  }
}

const ResultHistory& TorchRunnerBase::finish_training() {
  static constexpr auto operation = "runner.finish_training";
  Internals::Checks(*this).not_training(operation);
  check<StateError>(host_ != nullptr, operation, "expected a call after train_on_batch, got one without");
  check<StateError>(host_->evaluation == nullptr, operation,
                    "expected finish_evaluation() after evaluate_on_batch, got the end of training");
  if (host_->frame == nullptr) {
    Internals::HostLoop::end(*this);  // there was nothing to do
    return results_;
  }
  const detail::FlagScope call(training_);
  const Internals::WatchedLoop watched(*this);
  try {
    if (!host_->ended) {  // later operations may throw on a full disk; the program then calls again
      host_->finish();
    }
    Internals::Training(*this).save_last();
  } catch (...) {
    Internals::Training(*this).rethrow();
  }
  callbacks_.notify(&Callback::on_run_end, "on_run_end", RunEvent{{*this}, host_->splits, {}});
  if (tapes_ != nullptr) {
    tapes_->log_report();
  }
  Internals::HostLoop::end(*this);
  return results_;
}

std::string TorchRunnerBase::unfinished_work() const {
  return host_ == nullptr || host_->frame == nullptr || host_->ended
             ? std::string()
             : concat("expected finish_training() after the last train_on_batch, got none: the result of the run and ",
                      state_.train.global_step, " steps, except what earlier checkpoints hold, are not saved");
}

void TorchRunnerBase::Internals::HostLoop::finish() {
  TrainPass(runner_).join(*frame, /*whole=*/true);  // other processes may have more batches
  Windows(runner_).close_last();
  Checks(runner_).models_updated(splits.front());
  evaluate_if_due();
  Result row;
  row.set(splits.front(), frame->finish([this](const Result&) { runner_.loop_.split.clear(); }));
  runner_.pass_ = nullptr;
  const std::int64_t epoch = runner_.state_.train.epoch++;
  ended = true;
  Records(runner_).append(runner_.state_.train.global_step, row);
  Checks(runner_).evaluations_of_host();
  runner_.callbacks_.notify(&Callback::on_round_end, "on_round_end", RoundEvent{{runner_}, epoch, row});
  Averages(runner_).end();
  Averages(runner_).estimate_statistics();
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

TorchRunnerBase::BatchReport TorchRunnerBase::evaluate_on_batch_impl(data::BatchRef batch, std::int64_t samples,
                                                                     const std::string& split) {
  static constexpr auto operation = "runner.evaluate_on_batch";
  initialize();
  Internals::Checks(*this).not_training(operation);
  if (host_ == nullptr) {
    host_ = std::make_shared<Internals::HostLoop>(*this);
  }
  auto& evaluation = host_->evaluation;
  if (evaluation == nullptr) {
    evaluation = std::make_unique<Internals::HostLoop::Evaluation>(*this, split);
  }
  check<ConfigError>(split == evaluation->frame.split(), operation, "expected batches of split ",
                     quote(evaluation->frame.split()), " until finish_evaluation(), got one of ", quote(split));
  const Internals::WatchedLoop watched(*this);
  profiled_ = detail::records_ranges();
  if (watched_ != nullptr) {
    Internals::WatchedLoop::mark_computing(*this, evaluation->done);
  }
  at::Tensor loss = Internals::Evaluator(*this).evaluate_batch(evaluation->frame, batch, samples);
  evaluation->frame.log(++evaluation->done);
  return {std::move(loss), false, false};
}

Result TorchRunnerBase::finish_evaluation() {
  check<StateError>(host_ != nullptr && host_->evaluation != nullptr, "runner.finish_evaluation",
                    "expected a call after evaluate_on_batch, got one without");
  Result result = host_->evaluation->frame.finish();
  const std::string split = host_->evaluation->frame.split();
  host_->evaluation.reset();  // restores the meters of the training pass
  if (host_->frame == nullptr) {
    host_.reset();
    return result;  // the program only evaluates
  }
  if (!is_settled()) {
    if (warned_.insert("evaluation in a window").second) {
      logger().warning(
          "runner.finish_evaluation: expected an evaluation between two updates, got one inside an accumulation "
          "window, where no checkpoint can be saved: it is not part of the results that the best is chosen from; "
          "evaluate after a batch that `updated`");
    }
    return result;
  }
  if (!results_.score_split()) {
    results_.select(split, config().score_name, Internals::Records(*this).known_score_direction());
  }
  if (results_.score_split() != split && results_.scores().empty() && warned_.insert("score split").second) {
    logger().warning(concat("runner.finish_evaluation: expected an evaluation of score_split ",
                            quote(*results_.score_split()), ", by which the best is chosen, got one of ",
                            quote(split)));
  }
  Result row;
  row.set(split, result);
  host_->append(row);
  return result;
}

}  // namespace danling::inline v0
