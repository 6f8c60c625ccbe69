// The general scheduler: a curve over the whole run, with warm-up and cool-down.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <danling/optim/curves.hpp>
#include <danling/optim/options.hpp>
#include <danling/optim/scheduler.hpp>

namespace danling::inline v0::optim {

/// A curve from the base rate to the final rate over `total_steps` updates (DanLing's LRScheduler). Update k, counted
/// from 1, uses the curve at progress k / total_steps. The first `warmup_steps` updates scale this rate linearly up
/// from `min_lr`, the last `cooldown_steps` linearly down to it. After `total_steps` updates the last rate stays;
/// `is_finished()` is true after one more. A group with base rate 0 stays frozen, unless `final_lr` is set.
class LRScheduler final : public Scheduler {
 public:
  /// `options.type` is one of `curves()`, cosine by default; for a custom `curve` it is only a name for messages. The
  /// curve maps progress from 0 to 1 to the fraction of the way between the rates. `options.total_steps` overrides
  /// `total_steps`.
  /// @throws ConfigError for options that contradict each other, are out of range or belong to other schedules.
  LRScheduler(Optimizer& optimizer, std::int64_t total_steps, const SchedulerSpec& options = {},
              std::function<double(double)> curve = nullptr);

  /// The rates at the current position, one per group.
  std::vector<double> get_lr() const;
  /// The rate of a group with base rate `base_lr` at `step_count`, counted from 1.
  double lr_at(double base_lr, std::int64_t step_count) const;

  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override;
  void rates_at(std::int64_t position, std::vector<double>& lrs) const override;
  std::optional<std::int64_t> length() const override { return total_steps(); }
  bool is_finished() const override { return step_count() > total_steps() + 1; }
  std::int64_t total_steps() const { return *options_.total_steps; }
  std::int64_t warmup_steps() const { return *options_.warmup_steps; }
  std::int64_t cooldown_steps() const { return *options_.cooldown_steps; }
  /// `LRScheduler(cosine, scaling=percentile, final_lr_ratio=0.001, total_steps=5, ...)`
  std::string text() const;

 private:
  double fraction(std::int64_t step_count) const;
  double rate(double base_lr, std::int64_t step_count, double fraction) const;

  SchedulerSpec options_;  // with unset options filled in
  Curve curve_;
  bool percentile_ = true;
};

}  // namespace danling::inline v0::optim
