// NestedTensors as arguments of torch::nn::Sequential and AnyModule, which compare the types of arguments exactly.
#pragma once

#include <utility>

#include <torch/nn/modules/container/any_value.h>

#include <danling/tensors/nested_tensor.hpp>

namespace torch::nn {

/// A NestedTensor is passed as the at::Tensor that it is.
template <>
struct AnyValue::Holder<danling::NestedTensor> : AnyValue::Holder<at::Tensor> {
  template <class T>
  explicit Holder(T&& tensor) noexcept : AnyValue::Holder<at::Tensor>(std::forward<T>(tensor)) {}
};

}  // namespace torch::nn
