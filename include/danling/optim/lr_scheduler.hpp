// The general scheduler: a curve over the whole run, with warm-up and cool-down.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/optim/scheduler.hpp>

namespace danling::inline v0::optim {

/// How the part of the way that a curve has gone, 0 to 1, becomes a rate between the base and the final one.
enum class Scaling {
  percentile,  ///< Geometric: base * (final / base)^ratio.
  numerical,   ///< Straight: final + (1 - ratio) * (base - final).
};

/// @throws ConfigError for a name that is not "percentile" or "numerical".
Scaling parse_scaling(std::string_view name);

struct LRSchedulerOptions {
  /// The final rate over the base rate. 1e-3 when neither this nor `final_lr` is given; not both.
  std::optional<double> final_lr_ratio = std::nullopt;
  std::optional<double> final_lr = std::nullopt;
  /// Where warm-up starts and cool-down ends; no rate is below it. Lowered to `final_lr` when that is smaller.
  double min_lr = 1e-9;
  /// "linear", "cosine" or "constant". A name for messages where `curve` is given.
  std::string method = "cosine";
  /// A curve of your own: progress from 0 to 1 in, the part of the way that the rate has gone out.
  std::function<double(double)> curve = nullptr;
  /// total_steps / 20 when not given; 0 for none.
  std::optional<std::int64_t> warmup_steps = std::nullopt;
  /// total_steps / 5 when not given; 0 for none.
  std::optional<std::int64_t> cooldown_steps = std::nullopt;
  /// Percentile when the final rate is a ratio, numerical when it is `final_lr`.
  std::optional<Scaling> scaling = std::nullopt;
  /// Called once, when the schedule is stepped past its end.
  std::function<void(const std::string&)> on_warning = nullptr;
};

/// A curve from the base rate to the final rate over `total_steps`, between a linear warm-up from and a linear
/// cool-down to `min_lr` (DanLing's LRScheduler). Update k, from 1, runs at the rate of progress k / total_steps.
/// Stepped further than total_steps + 1, it warns once and keeps the rate of its end. A group with base rate 0 is
/// frozen and stays so, unless `final_lr` is given.
class LRScheduler final : public Scheduler {
 public:
  /// @throws ConfigError for options that contradict each other or are out of range.
  LRScheduler(Optimizer& optimizer, std::int64_t total_steps, LRSchedulerOptions options = {});

  /// The rates at the current position, one per group.
  std::vector<double> get_lr() const;
  /// The rate of a group with base rate `base_lr` at `step_count`, from 1.
  double lr_at(double base_lr, std::int64_t step_count) const;

  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t warmup_steps() const { return warmup_steps_; }
  std::int64_t cooldown_steps() const { return cooldown_steps_; }
  /// `LRScheduler(cosine, scaling=percentile, final_lr_ratio=0.001, total_steps=5, ...)`
  std::string text() const;

 private:
  void compute(std::vector<double>& lrs, std::optional<double> metric) override;
  void restore(std::vector<double>& lrs) override;

  std::int64_t total_steps_;
  std::int64_t warmup_steps_;
  std::int64_t cooldown_steps_;
  std::optional<double> final_lr_ratio_;
  std::optional<double> final_lr_;
  double min_lr_;
  Scaling scaling_;
  std::string method_;
  std::function<double(double)> curve_;
  std::function<void(const std::string&)> on_warning_;
  bool warned_ = false;
};

}  // namespace danling::inline v0::optim
