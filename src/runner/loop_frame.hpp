// One pass of a loop over a split: its meters, clock and log lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/loop_telemetry.hpp>

namespace danling::inline v0::detail {

class LoopFrame {
 public:
  /// @param total  batches (or updates, in step mode) of the pass; empty if unknown
  LoopFrame(TorchRunnerBase& runner, std::string_view split, std::optional<std::int64_t> total);
  ~LoopFrame();
  LoopFrame(const LoopFrame&) = delete;
  LoopFrame& operator=(const LoopFrame&) = delete;

  const std::string& split() const { return split_; }
  /// Adds a loss, weighted by its number of valid targets; ignores it if there are none or it is undefined.
  void add_loss(const at::Tensor& loss, std::optional<std::int64_t> normalizer) {
    const std::int64_t count = normalizer.value_or(1);
    if (count <= 0) [[unlikely]] {
      ++without_targets_;
    } else if (loss.defined()) {
      find_meters();
      if (!checked_loss_) [[unlikely]] {
        check_loss_meter();
      }
      loss_->update(loss, count);
      unweighted_ |= !normalizer.has_value();
    } else {
      ++without_loss_;
    }
  }
  /// True if steps on this rank returned no loss, and no rank any.
  bool lacks_loss() {
    find_meters();
    return without_loss_ > 0 && loss_->count() == 0;
  }
  /// True if this rank added batches without a valid target, and no rank any other loss (as of the last exchange).
  bool lacks_targets() {
    find_meters();
    return without_targets_ > 0 && loss_->count() == 0;
  }
  /// True if losses without a normalizer are of batches of different sizes.
  bool averages_unevenly() const { return unweighted_ && least_samples_ != most_samples_; }
  std::pair<std::int64_t, std::int64_t> batch_sizes() const { return {least_samples_, most_samples_}; }
  /// Adds the learning rate as "lr", or for one of several models as "lr_<name>".
  void add_rate(const Learner& learner, std::int64_t times = 1);

  /// Called before each shard, and on several processes before each micro-batch: assigns the next updates of meters and
  /// metrics to the batch of this number.
  void begin_batch(std::int64_t number) const;

  /// Requires meters that `enter` has reset; progress starts at the steps already done.
  void start(std::int64_t done = 0);
  /// Called after an evaluation interrupted the pass: excludes its time.
  void resume();

  /// Called when the batch is loaded and the step begins. Reads the clock once.
  void data_ready() {
    if (!checked_loss_) [[unlikely]] {
      find_meters();
      loss_count_ = loss_->count();
    }
    telemetry_.data_ready();
  }
  /// Called after each micro-batch. Reads the clock once. Discards the numbers if another rank reports the same
  /// samples.
  void observe(std::int64_t samples, std::int64_t tokens) {
    if (!reports_) [[unlikely]] {
      reset_numbers();
      samples = tokens = 0;
    }
    least_samples_ = least_samples_ == 0 ? samples : std::min(least_samples_, samples);
    most_samples_ = std::max(most_samples_, samples);
    checked_loss_ = true;  // only the first batch, since the count of a meter may be on a device
    now_ = telemetry_.observe(samples, tokens);
  }
  /// Called instead of observe() after a shard that is not the last of the step.
  void observe_part(std::int64_t samples, std::int64_t tokens) { now_ = telemetry_.observe_part(samples, tokens); }

  LoopTelemetry::Clock::time_point now() const { return now_; }

  /// Called after `done` steps of the pass. At a log boundary it reads numbers (synchronizes with the device) and
  /// writes lines. Training combines numbers over ranks; an evaluation logs those of this rank every few seconds.
  void log(std::int64_t done) {
    done_ = done;
    if (at_boundary(done) && due()) [[unlikely]] {
      write_line();
    } else {
      progress(done);
    }
  }

  /// Called on a rank that has ended its pass, when the others are in log() at `done`: takes part.
  void join_line(std::int64_t done);

  /// True when log() reads numbers after this many steps.
  bool at_boundary(std::int64_t done) const {
    return interval_ > 0 && ((done > 1 && (done - 1) % interval_ == 0) || done == total_);
  }

  /// Ends the pass and logs the averages as one line. Calls `close` with the averages, then the callbacks.
  Result finish(const std::function<void(const Result&)>& close = {});

 private:
  /// False for the progress lines of an evaluation that are not due.
  bool due() const { return runner_.mode() == RunnerMode::train || now_ >= next_line_; }
  /// Looks the meters up again, since the program may have assigned to `meters`.
  void find_meters() {
    if (runner_.meters.generation() != meters_) [[unlikely]] {
      meters_ = runner_.meters.generation();
      loss_ = &runner_.meters["loss"];
      lr_ = nullptr;
    }
  }
  /// Warns if the first step of the pass has updated the meter of the loss that it returns.
  void check_loss_meter();
  void progress(std::int64_t done);
  void write_line();
  void write_synchronized();
  void send_split(bool begins, const Result& result) const;
  /// Counts since the last line, or of the whole pass, with the current memory.
  LoopCounts counts(bool whole);
  /// The numbers of a line that differ between runs with the same results.
  Result telemetry(const LoopCounts& counts) const;
  /// Combines meters, metrics and losses over the ranks. @return true when all ranks have ended the pass
  bool synchronize(bool ended);
  std::string place() const;
  void reset_numbers() const;
  void synchronize_numbers();
  /// Values of the last batch, or averages, of all meters, metrics and losses.
  Result collect(bool averages) const;

  TorchRunnerBase& runner_;
  std::string split_;
  std::int64_t total_;  // 0 if unknown
  std::int64_t interval_;
  bool reports_;
  std::int64_t done_ = 0;
  std::int64_t logged_ = -1;
  std::int64_t without_targets_ = 0;  // batches and shards that add_loss() ignored
  std::int64_t without_loss_ = 0;     // those with targets, of a step that returned none
  bool checked_loss_ = false;
  bool unweighted_ = false;                            // a loss had no normalizer
  std::int64_t least_samples_ = 0, most_samples_ = 0;  // of a batch
  std::int64_t loss_count_ = 0;                        // of the meter before the step
  double waited_before_ = 0.0;                         // time waited for other ranks in earlier passes
  std::uint64_t meters_ = 0;                           // generation of `meters`, to which the next two members belong
  AverageMeter* loss_ = nullptr;
  AverageMeter* lr_ = nullptr;
  LoopTelemetry telemetry_;
  std::optional<LoopCounts> counts_of_all_;  // of all ranks, since the last line
  LoopCounts most_;                          // memory in this pass
  LoopTelemetry::Clock::time_point now_;
  LoopTelemetry::Clock::time_point next_line_;
};

}  // namespace danling::inline v0::detail
