// Line search for the strong Wolfe conditions, as torch.optim.LBFGS does it.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::optim::detail {

/// The loss at a point of the line, its gradient, and the gradient's component along the line.
struct LinePoint {
  double step = 0;
  double loss = 0;
  at::Tensor grad = {};
  double slope = 0;
};

struct LineResult {
  LinePoint point;
  std::int64_t evaluations = 0;
};

/// Searches from `start`, at step 0, beginning with `step`. `evaluate(step)` returns a point with a separate gradient
/// tensor. `direction_size`: the direction's largest magnitude.
LineResult strong_wolfe(const std::function<LinePoint(double step)>& evaluate, const LinePoint& start, double step,
                        double direction_size, double tolerance_change, std::int64_t max_iterations);

}  // namespace danling::inline v0::optim::detail
