// Matrix products of tokens with weights.
#include "tensors/nested/operators.hpp"

namespace danling::inline v0::detail {
namespace {

void call_matmul(Call& call) {
  const at::Tensor self = call.tensor("self");
  call.expect(nested(self) != nullptr && nested(call.tensor("other")) == nullptr && call.tensor("other").dim() == 2,
              "expected a NestedTensor and a matrix");
  const NestedTensorImpl& impl = *nested(self);
  call.expect(!impl.structure().is_ragged(impl.element_rank() - 1),
              "expected elements with a static last dimension, got ", text_of_shapes(impl));
  call["self"] = values_of(self);
  call.run();
  call.result(0) = wrap(call.result(0).toTensor(), impl.structure());
}

}  // namespace

void add_matmul(OperatorTable& table) { table.add(Way::packed, call_matmul, {"matmul"}); }

}  // namespace danling::inline v0::detail
