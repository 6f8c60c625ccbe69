// The schedules of DeepSpeed's section `scheduler`, with the same curves and defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/tree.hpp>
#include <danling/optim/scheduler.hpp>

namespace danling::inline v0 {

/// Options of one schedule, with DeepSpeed's defaults. A list has one value, or one per parameter group.
struct DeepSpeedScheduleOptions {
  enum class Type { LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR };
  Type type = Type::WarmupLR;

  std::vector<double> min_lr;  ///< warmup_min_lr, lr_range_test_min_lr or cycle_min_lr
  std::vector<double> max_lr;  ///< warmup_max_lr or cycle_max_lr; empty: the optimizer's learning rates
  std::int64_t warmup_num_steps = 1000;
  bool log_warmup = true;  ///< warmup_type: log or linear
  std::int64_t total_num_steps = 0;
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;

  std::int64_t range_step_size = 2000;
  double range_step_rate = 1;
  bool range_staircase = false;

  double first_step_size = 2000, second_step_size = 2000;
  std::int64_t first_stair_count = 0, second_stair_count = 0;
  double decay_step_size = 0;
  double decay_lr_rate = 0;
  bool cycle_momentum = true;
  double min_momentum = 0.8, max_momentum = 0.9;
  double decay_momentum_rate = 0;
};

/// Reads `{"type": ..., "params": {...}}`. @param notes  receives the warnings that DeepSpeed logs
/// @throws ConfigError for an unknown type or parameter, or one that is missing or out of range
DeepSpeedScheduleOptions read_deepspeed_schedule(const ConfigTree& section, std::vector<std::string>& notes);

/// Sets the learning rates as DeepSpeed's schedule of the same name: update 1 uses the lower rate (WarmupCosineLR: 0),
/// update k + 1 that of DeepSpeed's iteration k - 1. OneCycle also cycles Adam's first beta and sets the second to
/// 0.99; without betas it leaves momentum unchanged. The state is that of torch.optim.lr_scheduler.
class DeepSpeedSchedule final : public optim::Scheduler {
 public:
  /// @throws ConfigError for a list of neither one value nor one for each group of the optimizer
  DeepSpeedSchedule(optim::Optimizer& optimizer, DeepSpeedScheduleOptions options);

  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override;
  std::optional<double> momentum_at(std::int64_t position) const override;

 private:
  double warmed(std::int64_t iteration) const;
  double scale_factor(std::int64_t position) const;

  DeepSpeedScheduleOptions options_;
  bool cycles_momentum_ = false;
};

}  // namespace danling::inline v0
