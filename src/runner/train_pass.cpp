#include <runner/train_pass.hpp>

#include <algorithm>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include <runner/agreement.hpp>
#include <runner/checks.hpp>
#include <runner/evaluator.hpp>
#include <runner/fault_tolerance.hpp>
#include <runner/flag_scope.hpp>
#include <runner/gradients.hpp>
#include <runner/loop_frame.hpp>
#include <runner/loss_policy.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>
#include <runner/snapshot.hpp>
#include <runner/training.hpp>
#include <runner/watchdog.hpp>
#include <runner/watched_loop.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {

/// Registers the pass for its lifetime, for evaluations that interrupt it.
class TorchRunnerBase::Internals::TrainPass::PassScope {
 public:
  PassScope(TorchRunnerBase& runner, detail::LoopFrame& pass) : runner_(runner) { runner_.pass_ = &pass; }
  ~PassScope() { runner_.pass_ = nullptr; }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  TorchRunnerBase& runner_;
};

void TorchRunnerBase::Internals::TrainPass::run(const std::string& split, bool resumed) {
  data::LoaderBase& loader = runner_.loader(split);
  const std::int64_t first_step = resumed ? loop_.first_step : global_step_;
  detail::LoopFrame frame(runner_, split,
                          runner_.by_steps_ ? std::optional(loop_.target_step - first_step) : loader.num_steps());
  const PassScope scope(runner_, frame);
  begin(frame, resumed);
  if (!runner_.by_steps_) {
    loader.start_epoch(runner_.state_.train.epoch);
  }
  if (resumed && runner_.requests_.evaluation) {
    evaluate();
  }
  while (next(frame, loader)) {
    const OpenStep step =
        runner_.computes_shards_
            ? train_shards(frame, loader)
            : train(frame, {runner_.current_batch(loader), loader.batch_size(), is_last(loader), &loader.info()});
    if (runner_.is_settled()) {  // never inside an accumulation window
      apply_requests(step.agreed);
    }
  }
  if (!runner_.by_steps_) {
    join(frame);
  }
  Windows(runner_).close_last();
  Checks(runner_).models_updated(split);
  frame.finish([&](const Result& result) {
    loop_.round.set(split, result);
    loop_.split.clear();
  });
}

// In epoch mode the batches of one pass. In step mode as many passes as the target needs, and further batches until the
// windows of all models are closed: only the end of the run shortens a window.
bool TorchRunnerBase::Internals::TrainPass::next(detail::LoopFrame& frame, data::LoaderBase& loader) {
  if (runner_.watched_ != nullptr) [[unlikely]] {
    WatchedLoop::mark_reading(runner_, loop_.iteration);
  }
  if (!runner_.by_steps_) {
    return read(loader);
  }
  if (is_due()) {
    return false;
  }
  if (!read(loader)) {
    join(frame);
    Gradients(runner_).settle();  // updates that a device has skipped do not count
    if (is_due()) {
      return false;
    }
    if (std::exchange(first_step_of_pass_, global_step_) == global_step_ && !Gradients(runner_).adapts_scale()) {
      return false;  // a whole pass made no update
    }
    loader.start_epoch(loader.epoch() + 1);
    check<DataError>(read(loader), "runner.train", "expected batches in split ", quote(frame.split()), ", got none");
  }
  return true;
}

bool TorchRunnerBase::Internals::TrainPass::read(data::LoaderBase& loader) {
  runner_.profiled_ = runner_.records_ranges_();
  const detail::NamedRange range(runner_.profiled_, "danling.data");
  return loader.next();
}

void TorchRunnerBase::Internals::TrainPass::begin(detail::LoopFrame& frame, bool resumed) {
  runner_.enter(RunnerMode::train, frame.split());
  Windows(runner_).drop();
  Checks(runner_).parameters_trained();
  if (resumed) {
    Snapshot(runner_).restore(runner_.saved_measurements_);
    frame.start(done());
  } else {
    loop_.split = frame.split();
    loop_.iteration = 0;
    loop_.first_step = global_step_;
    Gradients(runner_).begin_pass();
    frame.start();
  }
  loop_.continuing = false;
}

void TorchRunnerBase::Internals::TrainPass::apply_requests(const StepPacket& agreed) {
  detail::Requests& requests = runner_.requests_;
  if (runner_.fault_ != nullptr) [[unlikely]] {
    if (runner_.is_single_process_) {
      FaultTolerance(runner_).end_step(agreed);
    } else {
      // Ranks that repeat what a death interrupted must all know exactly the agreed requests.
      const bool asked = std::exchange(requests.evaluation, agreed.evaluate);
      requests.save = requests.save || agreed.save;
      FaultTolerance(runner_).end_step(agreed);
      requests.evaluation = requests.evaluation || asked;
    }
  }
  if (!runner_.is_single_process_ || requests.save || requests.evaluation) [[unlikely]] {
    if (runner_.is_single_process_ ? requests.save : agreed.save) {
      requests.save = false;
      try {
        runner_.save_checkpoint("latest", /*save_best=*/true, /*last_step=*/false, /*force=*/true);
      } catch (const DistributedError&) {  // the ranks that continue without a dead process save again
        requests.save = true;
        throw;
      }
    }
    if (runner_.is_single_process_ ? requests.evaluation : agreed.evaluate) {
      evaluate();
    }
  }
  Agreement(runner_).stop_if_requested(/*save=*/true, agreed);
}

void TorchRunnerBase::Internals::TrainPass::evaluate() {
  if (runner_.evaluate_splits().empty() && runner_.warned_.insert("evaluation").second) {
    runner_.logger().warning(
        "runner.request_evaluation: an evaluation was requested, but there is no split to evaluate");
  }
  // A run that is stopped meanwhile evaluates the rest when it resumes.
  for (const auto& split : runner_.evaluate_splits()) {
    if (std::find(loop_.evaluated.begin(), loop_.evaluated.end(), split) == loop_.evaluated.end()) {
      Evaluator(runner_).evaluate_in_training(split, /*whole=*/true);
      loop_.evaluated.push_back(split);
    }
  }
  loop_.evaluated.clear();
  runner_.requests_.evaluation = false;
}

TorchRunnerBase::Internals::OpenStep TorchRunnerBase::Internals::TrainPass::train(detail::LoopFrame& frame,
                                                                                  const MicroBatch& micro_batch) {
  frame.data_ready();
  if (runner_.watched_ != nullptr) [[unlikely]] {
    WatchedLoop::mark_computing(runner_, loop_.iteration);
  }
  if (!runner_.is_single_process_) {
    frame.begin_batch(loop_.iteration);  // a rank without a loss in this batch has no part in its log line
  }
  const auto [normalizer, tokens] = runner_.count_batch(micro_batch.batch).of_samples(micro_batch.samples);
  if (runner_.loss_policy_ != nullptr) [[unlikely]] {
    if (LossPolicy(runner_).passes_over(runner_.state_.train.micro_step)) {
      return pass_over(frame, micro_batch, tokens);
    }
    LossPolicy(runner_).begin_micro_batch(micro_batch);
  }
  return train_counted(frame, micro_batch, normalizer, tokens);
}

TorchRunnerBase::Internals::OpenStep TorchRunnerBase::Internals::TrainPass::train_counted(
    detail::LoopFrame& frame, const MicroBatch& micro_batch, std::optional<std::int64_t> normalizer,
    std::int64_t tokens) {
  OpenStep step = run_step(micro_batch, normalizer);
  end_micro_batch(frame, step);
  frame.add_loss(step.loss, normalizer);
  frame.observe(micro_batch.samples, tokens);
  if (runner_.callbacks_.has_step_listeners()) {
    notify_step(frame, step, micro_batch, tokens);
  }
  save_and_log(frame, step);
  return step;
}

void TorchRunnerBase::Internals::TrainPass::end_micro_batch(detail::LoopFrame& frame, OpenStep& step) {
  if (!runner_.is_single_process_) {
    runner_.parallelism().end_updates();
  }
  if (runner_.loss_policy_ != nullptr && runner_.is_settled()) [[unlikely]] {
    LossPolicy(runner_).settle();
  }
  ++loop_.iteration;
  if (runner_.watched_ != nullptr) [[unlikely]] {
    runner_.watched_->end_step();
  }
  if (step.skipped.defined()) [[unlikely]] {
    Gradients(runner_).count_flags(step);
  }
  if (runner_.unread_steps_.defined() && reads_counters(frame)) [[unlikely]] {
    step.updated = Gradients(runner_).settle() == 0;
    runner_.updated_at_ = step.updated ? runner_.updated_at_ : -1;
  }
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler != nullptr) {
      frame.add_rate(learner);
    }
  }
}

void TorchRunnerBase::Internals::TrainPass::save_and_log(detail::LoopFrame& frame, const OpenStep& step) {
  if (!runner_.by_steps_ || step.updated) {
    frame.log(done());
  }
  if (step.updated && runner_.save_interval_ > 0 && global_step_ % runner_.save_interval_ == 0 &&
      !(runner_.is_settled() && Training(runner_).evaluation_is_due())) {
    runner_.save_checkpoint();  // otherwise with the scores
  }
  if (!runner_.services().deferred_saves.empty() && runner_.is_settled()) [[unlikely]] {
    Saver(runner_).save_deferred();
  }
}

// A micro-batch of a window that a roll-back skips: only positions advance.
TorchRunnerBase::Internals::OpenStep TorchRunnerBase::Internals::TrainPass::pass_over(detail::LoopFrame& frame,
                                                                                      const MicroBatch& micro_batch,
                                                                                      std::int64_t tokens) {
  ++runner_.state_.train.micro_step;
  if (micro_batch.last) {
    Windows(runner_).align();
  }
  ++loop_.iteration;
  if (runner_.watched_ != nullptr) {
    runner_.watched_->end_step();
  }
  frame.observe(micro_batch.samples, tokens);
  if (!runner_.by_steps_) {
    frame.log(done());
  }
  return {.last = micro_batch.last};
}

// True where the number of updates matters: the device may have skipped some.
bool TorchRunnerBase::Internals::TrainPass::reads_counters(const detail::LoopFrame& frame) const {
  const auto interval = runner_.config().evaluate_interval;
  return runner_.by_steps_ && (frame.at_boundary(done()) || global_step_ >= loop_.target_step ||
                               (runner_.steps() && global_step_ >= *runner_.steps()) ||
                               (runner_.save_interval_ > 0 && global_step_ % runner_.save_interval_ == 0) ||
                               (interval && global_step_ % *interval == 0));
}

void TorchRunnerBase::Internals::TrainPass::notify_step(const detail::LoopFrame& frame, const OpenStep& step,
                                                        const MicroBatch& micro_batch, std::int64_t tokens) {
  const detail::FlagScope event(runner_.in_step_event_);  // their saves wait for the log line
  runner_.callbacks_.notify_step({{runner_},
                                  frame.split(),
                                  loop_.iteration,
                                  done(),
                                  step.loss,
                                  micro_batch.samples,
                                  tokens,
                                  step.place.closes,
                                  step.updated,
                                  frame.now()});
}

}  // namespace danling::inline v0
