// embedding_bag: one bag per sequence.
#include <utility>

#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Checks that offsets in the arguments equal those of the sequences.
void expect_own_offsets(Call& call, const at::Tensor& offsets, const NestedTensorImpl& impl) {
  if (!offsets.defined() || offsets.numel() == 0) {
    return;
  }
  const Ragged& ragged = *impl.structure().ragged;
  const at::Tensor own = ragged.offsets_on(offsets.device());
  bool fits = nested(offsets) == nullptr && offsets.dim() == 1 &&
              (offsets.numel() == ragged.batch() || offsets.numel() == ragged.batch() + 1);
  if (fits && offsets.is_cpu()) {
    fits = offsets.to(at::kLong).equal(own.narrow(0, 0, offsets.numel()));
  } else if (fits) {  // offsets on a device are not read
    fits = offsets.const_data_ptr() == own.const_data_ptr();
  }
  call.expect(fits, "expected no offsets, or offsets() of the NestedTensor, got others of shape (",
              join(offsets.sizes()), ") for elements ", text_of_shapes(impl));
}

void call_embedding_bag(Call& call) {
  const at::Tensor weight = call.tensor("weight"), indices = call.tensor("indices");
  call.expect(nested(indices) != nullptr && nested(weight) == nullptr,
              "expected a NestedTensor as indices and a plain weight");
  const NestedTensorImpl& impl = *nested(indices);
  call.expect(impl.element_rank() == 1, "expected elements of one dimension, the numbers of a bag, got ",
              text_of_shapes(impl));
  expect_own_offsets(call, call.tensor("offsets"), impl);
  call["indices"] = values_of(indices);
  call["offsets"] = impl.structure().ragged->offsets_on(indices.device());
  call["include_last_offset"] = true;
  if (call["per_sample_weights"].isTensor() && call.tensor("per_sample_weights").defined()) {
    const at::Tensor weights = call.tensor("per_sample_weights");
    call.expect(nested(weights) != nullptr && nested(weights)->structure().matches(impl.structure()),
                "expected a NestedTensor of the same lengths as per_sample_weights");
    call["per_sample_weights"] = values_of(weights);
  }
  call.run();
}

/// Renormalizes the looked-up rows of a table.
void call_embedding_renorm(Call& call) {
  const at::Tensor indices = call.tensor("indices");
  call.expect(nested(call.tensor("self")) == nullptr, "expected a plain weight, got a NestedTensor");
  call["indices"] = values_of(indices).reshape({-1});
  call.run();
}

}  // namespace

void add_embedding_bag(OperatorTable& table) {
  table.add(Way::offsets, call_embedding_bag, {"embedding_bag"});
  table.add(Way::packed, call_embedding_renorm, {"embedding_renorm_"});
}

}  // namespace danling::inline v0::detail
