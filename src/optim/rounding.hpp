// Stochastic rounding to bfloat16: keys of random bits, and rounding by operations on tensors as in the kernels.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::optim::detail {

/// Key of the random bits of one update of one parameter; not 0.
std::uint32_t rounding_key(double count, std::uint32_t number);
/// The same for a count on a device.
at::Tensor rounding_key(const at::Tensor& count, std::uint32_t number);

/// `wide`: float32. Returns the same bits as the kernels.
at::Tensor rounded_stochastically(const at::Tensor& wide, const at::Tensor& key);

/// Marks a change by a kernel for autograd, as LibTorch's in-place operations do.
void mark_changed(const at::Tensor& tensor);

/// Converts as the kernels do: complex numbers to pairs, two-byte dtypes to float32.
at::Tensor widened(const at::Tensor& tensor);

}  // namespace danling::inline v0::optim::detail
