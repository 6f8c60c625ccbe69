// Lets torch::nn::Sequential and AnyModule take NestedTensors: they compare argument types exactly.
#pragma once

#include <utility>

#include <torch/nn/modules/container/any_value.h>

#include <danling/tensors/nested_tensor.hpp>

namespace torch::nn {

/// Passes a NestedTensor as an at::Tensor, its base class.
template <>
struct AnyValue::Holder<danling::NestedTensor> : AnyValue::Holder<at::Tensor> {
  template <class T>
  explicit Holder(T&& tensor) noexcept : AnyValue::Holder<at::Tensor>(std::forward<T>(tensor)) {}
};

}  // namespace torch::nn
