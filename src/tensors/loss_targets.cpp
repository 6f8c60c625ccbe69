#include <danling/tensors/detail/loss_targets.hpp>

#include <algorithm>

#include <ATen/ops/sum.h>

#include <danling/tensors/nested_tensor.hpp>

#include <tensors/ignored.hpp>

namespace danling::inline v0::detail {

std::int64_t count_targets(const at::Tensor& target, std::int64_t ignore_index) {
  if (NestedTensor::is_nested(target)) {
    return count_targets(NestedTensor(target).concat(), ignore_index);
  }
  if (target.is_cpu() && target.scalar_type() == at::kLong && target.is_contiguous()) {
    // A plain loop: 64 labels take 20 ns; two dispatched kernels take 2,000 ns.
    const auto* label = static_cast<const std::int64_t*>(target.const_data_ptr());
    return std::count_if(label, label + target.numel(), [&](std::int64_t value) { return value != ignore_index; });
  }
  return not_ignored(target, ignore_index).sum().item<std::int64_t>();
}

}  // namespace danling::inline v0::detail
