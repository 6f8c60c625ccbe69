// Stochastic rounding to bfloat16: keys of random bits, and the kernels' rounding by operations on tensors.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::optim::detail {

/// Key of the random bits of one update of one parameter; not 0.
std::uint32_t rounding_key(double count, std::uint32_t number);
/// The same from a count on a device.
at::Tensor rounding_key(const at::Tensor& count, std::uint32_t number);

/// `wide`: float32. The same bits as those of the kernels.
at::Tensor rounded_stochastically(const at::Tensor& wide, const at::Tensor& key);

/// Autograd must notice a change by a kernel, as it does for LibTorch's in-place operations.
void mark_changed(const at::Tensor& tensor);

/// As the kernels compute: complex numbers as pairs, numbers of two bytes in float32.
at::Tensor widened(const at::Tensor& tensor);

}  // namespace danling::inline v0::optim::detail
