// The updates of SGD and Adam, operation by operation: for parameters that no fused kernel supports, and as the
// reference for fused kernels. Any dtype, complex too, and any strides. Call under no-grad.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

#include <danling/optim/options.hpp>

namespace danling::inline v0::optim::detail {

/// Options are complete. `momentum` is undefined before the first update, which creates it, and stays so without
/// momentum.
void update_sgd(at::Tensor param, at::Tensor grad, at::Tensor& momentum, const OptimizerOptions& options);

/// `moments`: exp_avg, exp_avg_sq and, with amsgrad, max_exp_avg_sq. `count`: updates, this one included; if negative,
/// `device_count` is used.
void update_adam(at::Tensor param, at::Tensor grad, std::array<at::Tensor, 3> moments, double count,
                 const at::Tensor& device_count, const OptimizerOptions& options, bool decoupled);

}  // namespace danling::inline v0::optim::detail
