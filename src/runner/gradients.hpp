// The gradients of an update: loss scale, finite check, clipping, statistics, and the count of skipped updates.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Gradients {
 public:
  explicit Gradients(TorchRunnerBase& runner) : runner_(runner) {}

  /// Reads the options of one model's updates. @throws ConfigError
  void configure(Learner& learner) const;
  /// Restores the statistics from the checkpoint, if it has any.
  void restore_stats(Learner& learner) const;
  /// Resets the means of a pass.
  void begin_pass() const;
  /// Checks and clips the gradients of the learner, adapts its loss scale, and steps its optimizer.
  /// @return false when the host skips the update
  bool update(Learner& learner, double divisor);

  /// Records the gradients of a part of the batch: of the window's first micro-batch, or of this rank before the sum.
  void record_part(Learner& learner) const { record_part(learner, learner.window.total()); }
  void record_part(Learner& learner, double weight) const;

  /// Adds `grad_norm` and `noise_scale`; for one of several models `grad_norm_<name>`. Synchronizes with the device.
  void add_stats(Result& result, bool averages) const;

  /// True while a loss scale still decreases, so that skipped updates are normal. Synchronizes with the device.
  bool adapts_scale() const;

  // Flags that the host has not read.
  void note_flag(Learner& learner, OpenStep& step) const;
  void count_flags(const OpenStep& step) const;
  /// Reads the flags and corrects the counters. Synchronizes with the device if there are any.
  /// @return the number of steps that are no longer counted
  std::int64_t settle() const;

 private:
  /// @param scale  divides the gradients in the optimizer's pass
  /// @return false when the host skips the update
  bool prepare(optim::GradScale& scale);
  /// Clips the gradients and measures them. @param norm  output: the norm if clipping by norm
  void clip(optim::GradScale& scale, at::Tensor& norm);
  bool skip_on_host(optim::GradScale& scale);
  void skip(Learner& learner) const;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
