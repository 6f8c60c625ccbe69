// One pass of training over a split, one micro-batch after another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::TrainPass {
 public:
  explicit TrainPass(TorchRunnerBase& runner)
      : runner_(runner), loop_(runner.loop_), global_step_(runner.state_.train.global_step) {}

  void run(const std::string& split, bool resumed);

  // Also used by a loop of the program, which supplies the batches.
  void begin(detail::LoopFrame& frame, bool resumed);
  OpenStep train(detail::LoopFrame& frame, const MicroBatch& micro_batch);
  /// Runs one micro-batch without records, events and saves; the finders use it too.
  OpenStep run_step(const MicroBatch& micro_batch, std::optional<std::int64_t> normalizer);
  /// Saves, evaluates or stops as callbacks requested: on one process at once, otherwise as the ranks agreed.
  void apply_requests(const StepPacket& agreed);
  /// Joins the updates of other processes until all have ended the pass, or in step mode until the target. @param whole
  /// always until all have ended the pass
  void join(detail::LoopFrame& frame, bool whole = false);
  /// Restores the pass afterwards, generators included.
  void evaluate();

 private:
  class PassScope;
  class StepScope;

  bool next(detail::LoopFrame& frame, data::LoaderBase& loader);
  bool read(data::LoaderBase& loader);
  /// The last micro-batch of a pass closes its windows, on all ranks together.
  bool is_last(const data::LoaderBase& loader) const {
    return runner_.joins_updates_ ? loader.is_last_on_all_ranks() : loader.is_last();
  }
  bool is_due() const {
    return (global_step_ >= loop_.target_step || runner_.requests_.ended) &&
           (runner_.is_settled() || global_step_ >= *runner_.steps());
  }
  void join_update(detail::LoopFrame& frame, const StepPacket& all);
  void end_micro_batch(detail::LoopFrame& frame, OpenStep& step);
  void save_and_log(detail::LoopFrame& frame, const OpenStep& step);
  OpenStep train_counted(detail::LoopFrame& frame, const MicroBatch& micro_batch,
                         std::optional<std::int64_t> normalizer, std::int64_t tokens);
  OpenStep open_step(bool last);
  void keep_buffers();
  void run_train_step(OpenStep& step, data::BatchRef batch, std::optional<std::int64_t> normalizer);
  OpenStep train_shards(detail::LoopFrame& frame, data::LoaderBase& loader);
  void seed_shard(const OpenStep& step, std::int64_t shard) const;
  OpenStep pass_over(detail::LoopFrame& frame, const MicroBatch& micro_batch, std::int64_t tokens);
  bool reads_counters(const detail::LoopFrame& frame) const;
  void check_step_calls(const OpenStep& step) const;
  void notify_step(const detail::LoopFrame& frame, const OpenStep& step, const MicroBatch& micro_batch,
                   std::int64_t tokens);
  /// Done in the pass: micro-batches, or in step mode updates.
  std::int64_t done() const { return runner_.by_steps_ ? global_step_ - loop_.first_step : loop_.iteration; }
  bool trains_one_model() const { return runner_.learners_.size() == 1 && runner_.learners_.front().name.empty(); }

  TorchRunnerBase& runner_;
  LoopState& loop_;
  const std::int64_t& global_step_;
  OpenStep joined_ = {};                  // the micro-batch whose updates this rank joins
  std::int64_t first_step_of_pass_ = -1;  // in step mode; -1: the pass began before a checkpoint or in another round
};

}  // namespace danling::inline v0
