// LibTorch's fused optimizer kernels, and checks that their updates equal unfused operations: some do not.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/optim/options.hpp>

namespace danling::inline v0::optim::detail {

enum class FusedKernel : std::uint8_t { sgd, adam, adamw };

/// Scale or flag argument of a kernel: float32, on the device of the parameters.
using OptionalTensor = std::optional<at::Tensor>;

/// Options are complete. Without momentum, `momenta` are not read; `first` overwrites them instead of adding.
void call_fused_sgd(at::TensorList params, at::TensorList grads, at::TensorList momenta, bool first,
                    const OptionalTensor& grad_scale, const OptionalTensor& found_inf, const OptimizerOptions& options);

/// The kernel of an update with these complete options: adamw for Adam with decoupled weight decay, which LibTorch's
/// adam does not have.
FusedKernel kernel_for(FusedKernel kernel, const OptimizerOptions& options);

/// `kernel` is adam or adamw.
void call_fused_adam(FusedKernel kernel, at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
                     at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,
                     const OptionalTensor& grad_scale, const OptionalTensor& found_inf,
                     const OptimizerOptions& options);

/// Returns whether `kernel` may be used for tensors of `dtype` on `device`: on CUDA, if `compare_fused` passes with
/// `brief_sizes`, which runs once per process, takes some milliseconds and waits for the device. Never on the CPU,
/// where danling's kernels run.
[[gnu::noinline]] bool is_usable(FusedKernel kernel, at::Device device, at::ScalarType dtype);

/// Returns whether `kernel` computes the unfused update, computed in float64, to 4 units in the last place: for tensors
/// with `sizes` elements, aligned and unaligned in their storage, with each combination of options. Waits for the
/// device.
bool compare_fused(FusedKernel kernel, at::Device device, at::ScalarType dtype, at::IntArrayRef sizes);

/// Sizes around the widths of vectors and unrolled loops, and one beyond a chunk of a multi-tensor launch.
inline constexpr std::int64_t brief_sizes[] = {0, 1, 7, 16, 33, 64, 127, 1000, 70'001};

}  // namespace danling::inline v0::optim::detail
