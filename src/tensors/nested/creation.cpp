// Tensors of the shape of a nested one.
#include <ATen/ops/full.h>

#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// new_zeros and similar operators: nested if the sizes equal those of the tensor, else plain.
void call_new(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const auto sizes = *call.integers("size");
  const bool alike = self.sizes() == c10::IntArrayRef(sizes);
  call["self"] = impl.values();
  if (alike) {
    call["size"] = impl.values().sizes().vec();
    if (call.has("stride")) {
      call["stride"] = impl.values().strides().vec();
    }
  }
  call.run();
  if (alike) {
    call.result(0) = wrap(call.result(0).toTensor(), impl.structure());
  }
}

}  // namespace

void add_creation(OperatorTable& table) {
  table.add(Way::packed, call_new, {"new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided"});
}

}  // namespace danling::inline v0::detail
