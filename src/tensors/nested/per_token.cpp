// Operators on the last, static dimensions of each token: linear layers, layer norms, embeddings.
#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Throws unless the last `count` dimensions of the elements are static.
void expect_static(Call& call, const NestedTensorImpl& impl, std::int64_t count) {
  for (std::int64_t dim = impl.element_rank() - count; dim < impl.element_rank(); ++dim) {
    call.expect(dim >= 0 && !impl.structure().is_ragged(dim), "expected elements with ", count,
                " static dimension(s) at the end, got ", text_of_shapes(impl));
  }
}

void call_on_values(Call& call, const at::Tensor& self, const NestedTensorImpl& impl) {
  for (std::size_t at = 0; at < call.size(); ++at) {
    c10::IValue& value = call[at];
    if (value.isTensor() && nested(value.toTensor()) != nullptr) {
      call.expect(value.toTensor().is_same(self), "expected weights of one size, got a NestedTensor of ",
                  text_of_shapes(*nested(value.toTensor())));
      value = values_of(self);
    }
  }
  call.run();
  for (std::size_t at = 0; at < call.num_results(); ++at) {
    c10::IValue& value = call.result(at);
    if (value.isTensor() && value.toTensor().defined()) {
      value = wrap(value.toTensor(), impl.structure());
    }
  }
}

void call_linear(Call& call) {
  const at::Tensor input = call.tensor("input");
  call.expect(nested(input) != nullptr, "expected a NestedTensor as input, got one as a weight");
  const NestedTensorImpl& impl = *nested(input);
  expect_static(call, impl, 1);
  call_on_values(call, input, impl);
}

/// bilinear on two vectors of each token.
void call_bilinear(Call& call) {
  const at::Tensor first = call.tensor("input1"), second = call.tensor("input2");
  call.expect(nested(first) != nullptr && nested(second) != nullptr && nested(call.tensor("weight")) == nullptr,
              "expected two NestedTensors as inputs and a plain weight");
  const NestedTensorImpl &impl = *nested(first), &other = *nested(second);
  expect_static(call, impl, 1);
  expect_static(call, other, 1);
  call.expect(impl.structure().matches(other.structure()), "expected NestedTensors of the same ragged sizes, got ",
              text_of_shapes(impl), " and ", text_of_shapes(other));
  call["input1"] = values_of(first);
  call["input2"] = values_of(second);
  call.run();
  call.result(0) = wrap(call.result(0).toTensor(), impl.structure());
}

void call_norm(Call& call) {
  const at::Tensor input = call.tensor("input");
  call.expect(nested(input) != nullptr, "expected a NestedTensor as input, got one as a weight");
  const NestedTensorImpl& impl = *nested(input);
  expect_static(call, impl, static_cast<std::int64_t>(call.integers("normalized_shape")->size()));
  call_on_values(call, input, impl);
}

void call_embedding(Call& call) {
  const at::Tensor indices = call.tensor("indices");
  call.expect(nested(indices) != nullptr, "expected a NestedTensor as indices, got one as weight");
  call_on_values(call, indices, *nested(indices));
}

}  // namespace

void add_per_token(OperatorTable& table) {
  table.add(Way::packed, call_linear, {"linear"});
  table.add(Way::packed, call_bilinear, {"bilinear"});
  table.add(Way::packed, call_norm, {"layer_norm", "rms_norm"});
  table.add(Way::packed, call_embedding, {"embedding"});
}

}  // namespace danling::inline v0::detail
