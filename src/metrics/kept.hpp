// Tensors stored between calls.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace danling::inline v0::detail {

// Normal tensors, also in inference mode: inference tensors could not be changed outside of it.

at::Tensor kept_empty(at::IntArrayRef shape, const at::TensorOptions& options);
/// A contiguous copy without a graph.
at::Tensor copy_outside_inference_mode(const at::Tensor& tensor);

}  // namespace danling::inline v0::detail
