// One pass of a loop over a split: its meters, its clock and its log lines.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/loop_telemetry.hpp>

namespace danling::inline v0::detail {

class LoopFrame {
 public:
  /// @param total  batches (or updates, in step mode) of the pass; nothing when unknown.
  LoopFrame(TorchRunnerBase& runner, std::string_view split, std::optional<std::int64_t> total);
  ~LoopFrame();
  LoopFrame(const LoopFrame&) = delete;
  LoopFrame& operator=(const LoopFrame&) = delete;

  const std::string& split() const { return split_; }
  /// Weighted by the targets that count; nothing where none does or the step returned no loss.
  void add_loss(const at::Tensor& loss, std::optional<std::int64_t> normalizer) {
    const std::int64_t count = normalizer.value_or(1);
    if (loss.defined() && count > 0) {
      find_meters();
      loss_->update(loss, count);
    }
  }
  /// The learning rate, as "lr", or of one of several models as "lr_<name>".
  void add_rate(const Learner& learner, std::int64_t times = 1);

  /// Called before each shard, and in several processes before each micro-batch: the next updates of meters and metrics
  /// belong to the batch of this number.
  void begin_batch(std::int64_t number) const;

  /// Requires meters reset by `enter`; progress starts at the steps already done.
  void start(std::int64_t done = 0);
  /// Called after an interruption by an evaluation: excludes its time from the pass.
  void resume();

  /// Called when the batch is loaded and the step begins: one clock read.
  void data_ready() { telemetry_.data_ready(); }
  /// Called after each micro-batch: one clock read. Where another rank reports the same samples, forgets the numbers.
  void observe(std::int64_t samples, std::int64_t tokens) {
    if (!reports_) [[unlikely]] {
      reset_numbers();
      samples = tokens = 0;
    }
    now_ = telemetry_.observe(samples, tokens);
  }
  /// The same after a shard that is not the last of the step.
  void observe_part(std::int64_t samples, std::int64_t tokens) { now_ = telemetry_.observe_part(samples, tokens); }

  LoopTelemetry::Clock::time_point now() const { return now_; }

  /// `done` steps of the pass are done: at a log boundary numbers are read (a device wait) and lines written. Training
  /// combines them over ranks; an evaluation logs those of this rank every few seconds.
  void log(std::int64_t done) {
    done_ = done;
    if (at_boundary(done) && due()) [[unlikely]] {
      write_line();
    } else {
      progress(done);
    }
  }

  /// Called on a rank whose pass is over, when the others have come to log() at `done`: it joins them.
  void join_line(std::int64_t done);

  /// Whether log() reads numbers at this many steps.
  bool at_boundary(std::int64_t done) const {
    return interval_ > 0 && ((done > 1 && (done - 1) % interval_ == 0) || done == total_);
  }

  /// Ends the pass and logs the averages as one line.
  /// Calls `close` with the averages, then the callbacks.
  Result finish(const std::function<void(const Result&)>& close = {});

 private:
  /// Progress lines of an evaluation, every few seconds, are not recorded.
  bool due() const { return runner_.mode() == RunnerMode::train || now_ >= next_line_; }
  /// The program may have assigned to `meters`.
  void find_meters() {
    if (runner_.meters.generation() != meters_) [[unlikely]] {
      meters_ = runner_.meters.generation();
      loss_ = &runner_.meters["loss"];
      lr_ = nullptr;
    }
  }
  void progress(std::int64_t done);
  void write_line();
  void write_synchronized();
  void send_split(void (Callback::*training)(const SplitEvent&), void (Callback::*evaluating)(const SplitEvent&),
                  const Result& result) const;
  /// Counts since the last line, or of the whole pass, with the memory of now.
  LoopCounts counts(bool whole);
  /// The numbers of a line that differ between runs of the same results.
  Result telemetry(const LoopCounts& counts) const;
  /// Combines meters, metrics and losses over the ranks. @return whether all of them have ended the pass.
  bool synchronize(bool ended);
  std::string place() const;
  void reset_numbers() const;
  void synchronize_numbers();
  /// Values of the last batch, or the averages, over all meters, metrics and losses.
  Result collect(bool averages) const;

  TorchRunnerBase& runner_;
  std::string split_;
  std::int64_t total_;  // 0: unknown
  std::int64_t interval_;
  bool reports_;
  std::int64_t done_ = 0;
  std::int64_t logged_ = -1;
  double waited_before_ = 0.0;  // for other ranks, in earlier passes
  std::uint64_t meters_ = 0;    // their generation, to which the next two belong
  AverageMeter* loss_ = nullptr;
  AverageMeter* lr_ = nullptr;
  LoopTelemetry telemetry_;
  std::optional<LoopCounts> counts_of_all_;  // ranks, since the last line
  LoopCounts most_;                          // memory in this pass
  LoopTelemetry::Clock::time_point now_;
  LoopTelemetry::Clock::time_point next_line_;
};

}  // namespace danling::inline v0::detail
