// Warm-up and cool-down: linear from and to the lowest rate.
#pragma once

#include <cstdint>

namespace danling::inline v0::optim::detail {

struct Ramp {
  std::int64_t warmup = 0, cooldown = 0, total = 0;
  double min_lr = 0;

  /// Returns `lr` scaled for update `step`, counted from 1.
  double operator()(double lr, std::int64_t step) const {
    const std::int64_t cooling = step - (total - cooldown);
    if (step < warmup) {
      return static_cast<double>(step) / static_cast<double>(warmup) * (lr - min_lr) + min_lr;
    }
    if (cooldown > 0 && cooling > 0) {
      return (1 - static_cast<double>(cooling) / static_cast<double>(cooldown)) * (lr - min_lr) + min_lr;
    }
    return lr;
  }
};

}  // namespace danling::inline v0::optim::detail
