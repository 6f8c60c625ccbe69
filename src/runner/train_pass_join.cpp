// The end of a pass on one rank while others have batches: the rank joins their updates.
#include <runner/agreement.hpp>
#include <runner/loop_frame.hpp>
#include <runner/train_pass.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {

// Ranks may have different numbers of batches: a rank without a batch takes part in the updates of the others until all
// passes have ended. It contributes no loss and sends no step events.
void TorchRunnerBase::Internals::TrainPass::join(detail::LoopFrame& frame, bool whole) {
  if (!runner_.joins_updates_) {
    return;
  }
  keep_buffers();
  bool inside = false;  // inside a micro-batch of the others that updates one of their models
  while (whole || !runner_.by_steps_ || inside || !is_due()) {
    const StepPacket all = Agreement(runner_).agree({.weight = Windows(runner_).open_weight(),
                                                     .unit = runner_.learners_.front().window.summed_unit(),
                                                     .micro_step = runner_.state_.train.micro_step,
                                                     .iteration = loop_.iteration,
                                                     .ended = true});
    if (all.all_ended) {
      runner_.state_.train.micro_step = all.micro_step;
      loop_.iteration = all.iteration;
      return;
    }
    if (all.logs) {
      loop_.iteration = all.iteration;
      frame.join_line(done());
    } else {
      inside = runner_.learners_.size() > 1 && all.learner >= 0;
      join_update(frame, all);
      keep_buffers();
    }
  }
}

// With several models, a packet without a model ends the micro-batch.
void TorchRunnerBase::Internals::TrainPass::join_update(detail::LoopFrame& frame, const StepPacket& all) {
  OpenStep step{.agreed = all};
  const std::int64_t passed = all.iteration - loop_.iteration;  // by the others, since this rank's pass ended
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler != nullptr && passed > 0) {
      frame.add_rate(learner, passed);
    }
  }
  loop_.iteration = all.iteration;
  runner_.state_.train.micro_step = all.micro_step;
  if (all.learner >= 0) {
    step.updated = joined_.updated;
    runner_.parallelism().begin_step({});
    Windows(runner_).take_part(runner_.learners_[static_cast<std::size_t>(all.learner)], step);
    runner_.parallelism().end_step({});
    joined_ = step;
  } else {
    step = joined_;
    step.agreed = all;
  }
  if (runner_.learners_.size() > 1 && all.learner >= 0) {
    return;
  }
  end_micro_batch(frame, step);
  save_and_log(frame, step);
  joined_ = OpenStep();
  if (runner_.is_settled()) {
    apply_requests(step.agreed);
  }
}

}  // namespace danling::inline v0
