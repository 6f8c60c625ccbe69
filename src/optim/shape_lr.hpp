// A schedule between two rates per group, whose shape is a function of the position.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <danling/optim/scheduler.hpp>

namespace danling::inline v0::optim::detail {

/// A shape over positions: 0 is the low rate, 1 the high rate.
using Shape = std::function<double(std::int64_t position)>;

/// The two ends of a shape. Rates have one value per group; unset rates are the base rates.
struct ShapeOptions {
  std::optional<std::vector<double>> low = std::nullopt, high = std::nullopt;
  // Momentum falls from the highest to the base as its shape rises from 0 to 1. Without a shape it does not change.
  Shape momentum = nullptr;
  double base_momentum = 0, max_momentum = 0;
  std::optional<std::int64_t> length = std::nullopt;
};

class ShapeLR final : public Scheduler {
 public:
  /// @throws ConfigError when the optimizer has no momentum to cycle.
  ShapeLR(Optimizer& optimizer, Shape shape, ShapeOptions options);

  std::optional<double> rate_at(std::int64_t position, std::size_t group) const override;
  void rates_at(std::int64_t position, std::vector<double>& lrs) const override;
  std::optional<double> momentum_at(std::int64_t position) const override;
  std::optional<std::int64_t> length() const override { return options_.length; }
  bool is_finished() const override { return options_.length && last_epoch() > *options_.length; }

 private:
  double rate(double height, std::size_t group) const;

  Shape shape_;
  ShapeOptions options_;
};

}  // namespace danling::inline v0::optim::detail
