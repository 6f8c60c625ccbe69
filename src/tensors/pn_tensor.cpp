#include <danling/tensors/pn_tensor.hpp>

#include <ATen/ops/ones.h>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

PNTensor::PNTensor(at::Tensor tensor) : at::Tensor(std::move(tensor)) {
  check<DataError>(!NestedTensor::is_nested(*this), "pn_tensor.constructor",
                   "expected one sample, got a NestedTensor; its elements() are samples");
}

at::Tensor PNTensor::mask() const { return at::ones({}, options().dtype(at::kBool)).expand(sizes()); }

PNTensor tensor(at::Tensor data) { return PNTensor(std::move(data)); }

NestedTensor collate_nested(const std::vector<PNTensor>& samples, const NestedTensorOptions& options) {
  return NestedTensor(std::vector<at::Tensor>(samples.begin(), samples.end()), options);
}

}  // namespace danling::inline v0
