// Distances between all tokens of two batches, and tensordot.
#include <algorithm>
#include <vector>

#include <ATen/ops/cdist.h>
#include <ATen/ops/tensordot.h>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

/// Packed if the second argument is a plain table of vectors; per element between two sequences.
void call_cdist(Call& call) {
  const at::Tensor first = call.tensor("x1"), second = call.tensor("x2");
  const NestedTensorImpl *left = nested(first), *right = nested(second);
  const auto is_tokens = [](const NestedTensorImpl* impl) {
    return impl == nullptr || (impl->element_rank() == 2 && impl->structure().ragged_dims == c10::DimVector{0} &&
                               impl->structure().batch_first);
  };
  for (const NestedTensorImpl* impl : {left, right}) {
    if (!is_tokens(impl)) {
      call.refuse("expected NestedTensors (batch, length, features), got elements ", text_of_shapes(*impl));
    }
  }
  if (left != nullptr && right != nullptr) {
    expect_fallback_allowed(call);
    const PerElement results = run_per_element(call);
    call.finish(nest_results(results, 0, *left, c10::DimVector{0, 1}));
    return;
  }
  const at::Tensor& table = left == nullptr ? first : second;
  call.expect(table.dim() == 2 && left != nullptr, "expected two NestedTensors, or one first and a table of vectors ",
              "(count, features), got a tensor of shape (", join(table.sizes()), ") with elements ",
              text_of_shapes(left == nullptr ? *right : *left), "; nested_like() packs a padded tensor");
  call["x1"] = values_of(first);
  call.run();
  call.result(0) = wrap(call.result(0).toTensor(), left->structure());
}

/// Converts dimensions of the tensor to those of the values. `rows`: set to true if the batch and all ragged dimensions
/// are included.
std::vector<std::int64_t> values_dims_of(Call& call, const at::Tensor& tensor, const std::vector<std::int64_t>& dims,
                                         bool& rows) {
  const NestedTensorImpl& impl = *nested(tensor);
  const Structure& structure = impl.structure();
  std::vector<std::int64_t> out;
  std::size_t num_rows = 0;
  for (const std::int64_t dim : dims) {
    const auto own = structure.element_dim(wrapped_dim(call, tensor, dim), impl.element_rank());
    const bool is_row = !own || structure.is_ragged(*own);
    num_rows += is_row ? 1 : 0;
    if (!is_row) {
      out.push_back(structure.values_dim(*own));
    } else if (num_rows == 1) {  // all of them are one dimension of the values
      out.push_back(0);
    }
  }
  rows = num_rows > 0;
  call.expect(!rows || num_rows == structure.ragged->rank() + 1,
              "expected static dimensions, or all ragged ones with the batch, got (", join(dims), ") of elements ",
              text_of_shapes(impl));
  return out;
}

void call_tensordot(Call& call) {
  const at::Tensor self = call.tensor("self"), other = call.tensor("other");
  const auto dims_self = *call.integers("dims_self"), dims_other = *call.integers("dims_other");
  call.expect(nested(self) != nullptr, "expected the NestedTensor first, so that the batch stays in front");
  const NestedTensorImpl& impl = *nested(self);
  bool rows = false, other_rows = false;
  const auto own = values_dims_of(call, self, dims_self, rows);
  if (nested(other) == nullptr) {
    call.expect(!rows, "expected two NestedTensors to sum over tokens, got a tensor of shape (", join(other.sizes()),
                ") with elements ", text_of_shapes(impl), "; nested_like() packs a padded tensor");
    Structure structure = impl.structure();
    for (std::int64_t& ragged : structure.ragged_dims) {
      const std::int64_t before = ragged;
      for (const std::int64_t dim : dims_self) {
        const auto gone = structure.element_dim(wrapped_dim(call, self, dim), impl.element_rank());
        ragged -= *gone < before ? 1 : 0;
      }
    }
    call.expect(structure.batch_first || structure.ragged_dims.front() == 0 || own.empty(),
                "expected the first dimension to stay, with the batch as the second one, got elements ",
                text_of_shapes(impl));
    call.finish(wrap(at::tensordot(values_of(self), other, own, dims_other), std::move(structure)));
    return;
  }
  const auto others = values_dims_of(call, other, dims_other, other_rows);
  bool same_order = dims_self.size() == dims_other.size() && own.size() == others.size();
  for (std::size_t at = 0; same_order && at < dims_self.size(); ++at) {  // batch with batch, length with length
    const auto a = impl.structure().element_dim(dims_self[at], impl.element_rank());
    const auto b = nested(other)->structure().element_dim(dims_other[at], nested(other)->element_rank());
    const auto place = [](const Structure& structure, const std::optional<std::int64_t>& dim) {
      return !dim                        ? std::int64_t{-1}
             : structure.is_ragged(*dim) ? static_cast<std::int64_t>(structure.ragged_index(*dim))
                                         : std::int64_t{-2};
    };
    same_order = place(impl.structure(), a) == place(nested(other)->structure(), b);
  }
  call.expect(rows && other_rows && same_order && same(impl.structure().ragged, nested(other)->structure().ragged),
              "expected a sum over the batch and all ragged dimensions of two NestedTensors of the same lengths, got (",
              join(dims_self), ") and (", join(dims_other), ") of elements ", text_of_shapes(impl), " and ",
              text_of_shapes(*nested(other)), "; matmul multiplies within each element");
  call.finish(at::tensordot(values_of(self), values_of(other), own, others));
}

}  // namespace

void add_distances(OperatorTable& table) {
  table.add(Way::mixed, call_cdist, {"cdist"});
  table.add(Way::packed, call_tensordot, {"tensordot"});
}

}  // namespace danling::inline v0::detail
