// Gradient clipping and detection of non-finite gradients.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim {

// Tensors of `params` without a gradient are skipped. `grad_divisor`: the optimizer's divisor; limits and norm refer to
// the divided gradients, but these functions do not divide them. @throws StateError for a sparse or complex gradient,
// ConfigError unless `grad_divisor` is finite and above 0.

/// Scales the gradients so that their common 2-norm is at most `max_norm` (torch.nn.utils.clip_grad_norm_). Returns the
/// norm before scaling: a scalar on the device of the first gradient, 0 without gradients. Does not wait for the
/// device; on the CPU nothing is multiplied if the norm is within the limit.
/// @throws ConfigError unless `max_norm` is above 0.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, double grad_divisor = 1.0);

/// The same without a pass over the gradients: stores the factor in `scale` for the optimizer's update. A non-finite
/// norm sets `scale.found_inf`. Norm and limit refer to the gradients divided by `scale`. Does not wait for the device,
/// unless the scale is on a device and the gradients are on the host.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, GradScale& scale);

/// The common 2-norm of the gradients. Does not wait for the device.
at::Tensor grad_norm(const std::vector<at::Tensor>& params, double grad_divisor = 1.0);

/// Clamps every gradient to [-max_value, max_value] (torch.nn.utils.clip_grad_value_). Does not wait for the device.
/// @throws ConfigError unless `max_value` is above 0.
void clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double grad_divisor = 1.0);

/// A scalar on the device of the first gradient: 1 when any gradient holds an infinity or NaN, else 0 (float32, so that
/// ranks can take the maximum). Does not wait for the device.
at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params);

/// Returns whether any gradient holds an infinity or NaN. Waits for the device.
bool has_nonfinite(const std::vector<at::Tensor>& params);

}  // namespace danling::inline v0::optim
