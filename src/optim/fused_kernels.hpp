// LibTorch's fused optimizer kernels, and checks that their update equals that of unfused operations: some do not.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/optim/options.hpp>

namespace danling::inline v0::optim::detail {

enum class FusedKernel : std::uint8_t { sgd, adam, adamw };

/// Scale or flag argument of a kernel: float32, on the device of the parameters.
using OptionalTensor = std::optional<at::Tensor>;

/// Options are complete. Without momentum `momenta` are not read; `first` fills them instead of adding to them.
void call_fused_sgd(at::TensorList params, at::TensorList grads, at::TensorList momenta, bool first,
                    const OptionalTensor& grad_scale, const OptionalTensor& found_inf, const OptimizerOptions& options);

/// `kernel` is adam or adamw.
void call_fused_adam(FusedKernel kernel, at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                     at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,
                     const OptionalTensor& grad_scale, const OptionalTensor& found_inf,
                     const OptimizerOptions& options);

/// Whether `kernel` may be used for tensors of `dtype` on `device`: on CUDA, when `compare_fused` finds it right, once
/// per process with `brief_sizes`, which takes some milliseconds and waits for the device. Never on the CPU, where
/// danling's own kernels run.
bool is_usable(FusedKernel kernel, at::Device device, at::ScalarType dtype);

/// Whether `kernel` computes the unfused update, computed in float64, to 4 units in the last place: for tensors with
/// `sizes` elements, aligned and unaligned in their storage, with each combination of options. Waits for the device.
bool compare_fused(FusedKernel kernel, at::Device device, at::ScalarType dtype, at::IntArrayRef sizes);

/// Around the widths of vectors and of unrolled loops, and more than one chunk of a multi-tensor launch.
inline constexpr std::int64_t brief_sizes[] = {0, 1, 7, 16, 33, 64, 127, 1000, 70'001};

}  // namespace danling::inline v0::optim::detail
