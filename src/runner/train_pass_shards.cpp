// Trains a micro-batch in shards, with virtual ranks.
#include <runner/loop_frame.hpp>
#include <runner/loss_policy.hpp>
#include <runner/shard_seed.hpp>
#include <runner/train_pass.hpp>
#include <runner/watchdog.hpp>
#include <runner/watched_loop.hpp>

namespace danling::inline v0 {

// Computes this process's shards of a global batch. Each shard has separate generators, so the result does not depend
// on the process; afterwards the generators of all processes are equal again.
TorchRunnerBase::Internals::OpenStep TorchRunnerBase::Internals::TrainPass::train_shards(detail::LoopFrame& frame,
                                                                                         data::LoaderBase& loader) {
  const bool passes_over =
      runner_.loss_policy_ != nullptr && LossPolicy(runner_).passes_over(runner_.state_.train.micro_step);
  OpenStep step = open_step(/*last=*/false);
  step.shards = loader.num_shares();
  std::int64_t samples = 0, all_tokens = 0;
  for (;;) {
    frame.begin_batch(loop_.iteration);
    const MicroBatch shard{runner_.current_batch(loader), loader.batch_size(), is_last(loader), &loader.info()};
    frame.data_ready();
    if (runner_.watched_ != nullptr) {
      WatchedLoop::mark_computing(runner_, loop_.iteration);
    }
    const auto [normalizer, tokens] = runner_.count_batch(shard.batch);
    step.shard = loader.share_index();
    step.last = shard.last;
    if (!passes_over) {
      if (runner_.loss_policy_ != nullptr) {
        LossPolicy(runner_).begin_micro_batch(shard);
      }
      seed_shard(step, loader.options().shard.rank + step.shard);
      run_train_step(step, shard.batch, normalizer);
      frame.add_loss(step.loss, normalizer);
    }
    samples += shard.samples;
    all_tokens += tokens;
    if (loader.is_last_share()) {
      frame.observe(shard.samples, tokens);
      break;
    }
    frame.observe_part(shard.samples, tokens);
    if (runner_.watched_ != nullptr) {
      WatchedLoop::mark_reading(runner_, loop_.iteration);
    }
    check<DataError>(read(loader), "runner.train", "expected all shards of a batch in split ", quote(frame.split()),
                     ", got ", step.shard + 1);
  }
  seed_shard(step, runner_.parallelism().data_share().size);
  if (passes_over) {
    ++runner_.state_.train.micro_step;
    ++loop_.iteration;
    if (runner_.watched_ != nullptr) {
      runner_.watched_->end_step();
    }
    if (!runner_.by_steps_) {
      frame.log(done());
    }
    return step;
  }
  end_micro_batch(frame, step);
  if (runner_.callbacks_.has_step_listeners()) {
    notify_step(frame, step, {runner_.current_batch(loader), samples, step.last, &loader.info()}, all_tokens);
  }
  save_and_log(frame, step);
  return step;
}

void TorchRunnerBase::Internals::TrainPass::seed_shard(const OpenStep& step, std::int64_t shard) const {
  seed_generators(detail::shard_seed(runner_.seed(), detail::ShardUse::train, step.position, shard));
}

}  // namespace danling::inline v0
