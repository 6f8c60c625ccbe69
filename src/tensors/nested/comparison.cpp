// Whether two batches are equal; choices by conditions.
#include <utility>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include "tensors/nested/operators.hpp"

namespace danling::inline v0::detail {
namespace {

/// Values of both, or nothing when their shapes differ. A plain tensor is compared where the other one has values.
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

}  // namespace

void add_comparison(OperatorTable& table) {
  table.add(Way::packed, call_equal, {"equal"});
  table.add(Way::packed, call_allclose, {"allclose"});
  table.add(
      Way::packed, call_elementwise,
      {"where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", "clamp_min", "clamp_max", "isneginf",
       "isposinf", "isnan", "isinf", "signbit", "logical_and", "logical_or", "logical_xor", "logical_not"});
}

}  // namespace danling::inline v0::detail
