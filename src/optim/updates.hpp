// The updates of SGD and Adam, operation by operation: for parameters that no fused kernel takes, and what fused
// kernels are compared with. Any dtype, complex too, and any strides. Call under no-grad.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>

namespace danling::inline v0::optim::detail {

/// `momentum` is undefined before the first update, which makes it, and stays so without momentum.
void update_sgd(at::Tensor param, at::Tensor grad, at::Tensor& momentum, const SGDOptions& options);

/// `moments`: exp_avg, exp_avg_sq and, with amsgrad, max_exp_avg_sq. `count`: updates, this one included.
void update_adam(at::Tensor param, at::Tensor grad, std::array<at::Tensor, 3> moments, double count,
                 const AdamOptions& options, bool decoupled);

}  // namespace danling::inline v0::optim::detail
