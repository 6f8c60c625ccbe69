// Comparison of two batches, and selection by conditions.
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <tensors/nested/operators.hpp>

namespace danling::inline v0::detail {
namespace {

/// Returns the values of both tensors, or nullopt if their shapes differ. A plain tensor is compared at the valid
/// positions of the other.
std::optional<std::pair<at::Tensor, at::Tensor>> comparable(const at::Tensor& a, const at::Tensor& b) {
  const NestedTensorImpl *first = nested(a), *second = nested(b);
  if (first == nullptr || second == nullptr) {
    if (a.sizes() != b.sizes()) {
      return std::nullopt;
    }
    const Structure& structure = (first != nullptr ? first : second)->structure();
    return std::pair(first != nullptr ? values_of(a) : pack(a, structure),
                     second != nullptr ? values_of(b) : pack(b, structure));
  }
  if (!first->structure().matches(second->structure()) || first->values().sizes() != second->values().sizes()) {
    return std::nullopt;
  }
  return std::pair(values_of(a), values_of(b));
}

void call_equal(Call& call) {
  const auto both = comparable(call.tensor("self"), call.tensor("other"));
  call.finish(std::vector<c10::IValue>{both.has_value() && at::equal(both->first, both->second)});
}

void call_allclose(Call& call) {
  const auto both = comparable(call.tensor("self"), call.tensor("other"));
  call.finish(
      std::vector<c10::IValue>{both.has_value() && at::allclose(both->first, both->second, call["rtol"].toDouble(),
                                                                call["atol"].toDouble(), call.boolean("equal_nan"))});
}

/// Cosine similarity along a dimension, which may be ragged, composed of operators on nested tensors.
void call_cosine_similarity(Call& call) {
  const at::Tensor a = call.tensor("x1"), b = call.tensor("x2");
  const std::vector<std::int64_t> dim = *call.integers("dim");
  const double eps = call["eps"].toDouble();
  const auto unit = [&](const at::Tensor& x) {
    return x / at::linalg_vector_norm(x, 2, dim, /*keepdim=*/true).clamp_min(eps);
  };
  call.finish((unit(a) * unit(b)).sum(dim));
}

/// Operators over all values regardless of position, with one plain result.
void call_over_all_values(Call& call) {
  const at::Tensor first = call.first_nested();
  const NestedTensorImpl& impl = *nested(first);
  for (std::size_t at = 0; at < call.size(); ++at) {
    c10::IValue& value = call[at];
    const NestedTensorImpl* own = value.isTensor() ? nested(value.toTensor()) : nullptr;
    call.expect(own == nullptr || own->structure().matches(impl.structure()),
                "expected NestedTensors of the same ragged sizes, got ", text_of_shapes(impl), " and ",
                own == nullptr ? std::string() : concat(text_of_shapes(*own), text_of_layouts(impl, *own)));
    if (own != nullptr) {
      value = values_of(value.toTensor()).flatten();
    }
  }
  call.run();
}

/// Operators that look up each value in a plain table (boundaries, members). The result may have one more dimension.
void call_with_table(Call& call) {
  const at::Tensor first = call.first_nested();
  const Structure structure = nested(first)->structure();
  for (std::size_t at = 0; at < call.size(); ++at) {
    if (call[at].isTensor()) {
      call.expect((nested(call[at].toTensor()) != nullptr) == (at == 0),
                  "expected a NestedTensor first and plain tensors after it, got elements ",
                  text_of_shapes(*nested(first)));
    }
  }
  call[0] = values_of(first);
  call.run();
  call.result(0) = wrap(call.result(0).toTensor(), structure);
}

/// Searches one plain sequence for all packed numbers, or one sequence per element, element by element.
void call_searchsorted(Call& call) {
  const at::Tensor sequence = call.tensor("sorted_sequence"), self = call.tensor("self");
  call.expect(nested(self) != nullptr, "expected a NestedTensor of numbers to look for, got a tensor of shape (",
              join(self.sizes()), ")");
  const NestedTensorImpl& impl = *nested(self);
  if (nested(sequence) != nullptr) {
    expect_fallback_allowed(call);
    call.finish(nest_results(run_per_element(call), 0, impl));
    return;
  }
  call.expect(sequence.dim() == 1, "expected one sorted sequence, or a NestedTensor of them, got a tensor of shape (",
              join(sequence.sizes()), ") with elements ", text_of_shapes(impl));
  call["self"] = values_of(self);
  call.run();
  call.result(0) = wrap(call.result(0).toTensor(), impl.structure());
}

}  // namespace

void add_comparison(OperatorTable& table) {
  table.add(Way::packed, call_equal, {"equal"});
  table.add(Way::packed, call_allclose, {"allclose"});
  table.add(Way::offsets, call_cosine_similarity, {"cosine_similarity"});
  table.add(Way::packed, call_over_all_values,
            {"dist", "histc", "bincount", "_is_all_true", "_is_any_true", "item", "_local_scalar_dense", "is_nonzero"});
  table.add(Way::mixed, call_searchsorted, {"searchsorted.Tensor"});
  table.add(Way::packed, call_with_table, {"bucketize", "isin", "one_hot"});
}

}  // namespace danling::inline v0::detail
