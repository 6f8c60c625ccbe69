// Lets torch::autograd::Function::apply take NestedTensors: it compares argument types exactly.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <danling/tensors/nested_tensor.hpp>

namespace torch::autograd {

/// Without this, apply() would not treat a NestedTensor as a variable, and it would receive no gradient.
template <>
inline void ExtractVariables::operator()<danling::NestedTensor>(const danling::NestedTensor& tensor) {
  (*this)(static_cast<const at::Tensor&>(tensor));
}

}  // namespace torch::autograd
