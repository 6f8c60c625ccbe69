// NestedTensors as arguments of torch::autograd::Function::apply, which compares the types of arguments exactly.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <danling/tensors/nested_tensor.hpp>

namespace torch::autograd {

/// Without it a NestedTensor would be no variable, and get no gradient, unless it is passed as the at::Tensor it is.
template <>
inline void ExtractVariables::operator()<danling::NestedTensor>(const danling::NestedTensor& tensor) {
  (*this)(static_cast<const at::Tensor&>(tensor));
}

}  // namespace torch::autograd
