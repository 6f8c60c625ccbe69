#include <optim/shape_lr.hpp>

#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim::detail {

ShapeLR::ShapeLR(Optimizer& optimizer, Shape shape, ShapeOptions options)
    : Scheduler(optimizer), shape_(std::move(shape)), options_(std::move(options)) {
  for (std::size_t g = 0; options_.momentum && g < optimizer.param_groups().size(); ++g) {
    check<ConfigError>(optimizer.momentum(g).has_value(), "scheduler.build",
                       "expected an optimizer with momentum or betas for cycle_momentum, got ", optimizer.name(),
                       "; set cycle_momentum: false");
  }
  start();
}

double ShapeLR::rate(double height, std::size_t group) const {
  const double low = options_.low ? (*options_.low)[group] : base_lrs()[group];
  const double high = options_.high ? (*options_.high)[group] : base_lrs()[group];
  return low + (high - low) * height;
}

void ShapeLR::rates_at(std::int64_t position, std::vector<double>& lrs) const {
  const double height = shape_(position);
  for (std::size_t g = 0; g < lrs.size(); ++g) {
    lrs[g] = rate(height, g);
  }
}

std::optional<double> ShapeLR::rate_at(std::int64_t position, std::size_t group) const {
  return rate(shape_(position), group);
}

std::optional<double> ShapeLR::momentum_at(std::int64_t position) const {
  if (!options_.momentum) {
    return std::nullopt;
  }
  return options_.max_momentum - (options_.max_momentum - options_.base_momentum) * options_.momentum(position);
}

}  // namespace danling::inline v0::optim::detail
