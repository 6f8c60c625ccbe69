// Tensors that collate to a NestedTensor.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/TensorOptions.h>
#include <torch/nn/modules/container/any_value.h>

#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0 {

/// A tensor that collates to a NestedTensor, so samples may differ in length. Operators return plain tensors: convert
/// the final tensor of a sample. (DanLing: PNTensor)
class PNTensor : public at::Tensor {
 public:
  PNTensor() = default;
  /// @throws DataError for a NestedTensor
  explicit PNTensor(at::Tensor tensor);

  /// The same accessors as NestedTensor, for one element.
  const at::Tensor& tensor() const { return *this; }
  const at::Tensor& concat() const { return *this; }
  /// True everywhere; stores one element.
  at::Tensor mask() const;
};

/// Creates a PNTensor with the dtype of torch::tensor or of the options: dl::tensor({1, 2, 3}) is int64.
template <class T>
PNTensor tensor(std::initializer_list<T> data, const at::TensorOptions& options) {
  return PNTensor(at::tensor(data, options));
}
template <class T>
PNTensor tensor(const std::vector<T>& data, const at::TensorOptions& options) {
  return PNTensor(at::tensor(data, options));
}
template <class T>
PNTensor tensor(std::initializer_list<T> data) {
  return PNTensor(detail::tensor_of<T>(data));
}
template <class T>
PNTensor tensor(const std::vector<T>& data) {
  return PNTensor(detail::tensor_of<T>(data));
}
PNTensor tensor(at::Tensor data);

/// Collates the samples to a NestedTensor.
NestedTensor collate_nested(const std::vector<PNTensor>& samples, const NestedTensorOptions& options = {});

}  // namespace danling::inline v0

namespace torch::nn {

/// Passes a PNTensor as an at::Tensor, its base class.
template <>
struct AnyValue::Holder<danling::PNTensor> : AnyValue::Holder<at::Tensor> {
  template <class T>
  explicit Holder(T&& tensor) noexcept : AnyValue::Holder<at::Tensor>(std::forward<T>(tensor)) {}
};

}  // namespace torch::nn
