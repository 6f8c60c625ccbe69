// Tensors that are kept from one call to the next.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace danling::inline v0::detail {

// Normal tensors, in inference mode too: one of inference mode could not be changed outside of it.

at::Tensor kept_empty(at::IntArrayRef shape, const at::TensorOptions& options);
/// Contiguous, without a graph.
at::Tensor kept_copy(const at::Tensor& tensor);

}  // namespace danling::inline v0::detail
