// Permutation of dimensions.
#include <algorithm>
#include <numeric>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/rows.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

/// Returns the rows of each element and its sizes after a permutation of its ragged dimensions.
std::vector<std::int64_t> reordered_rows(const Ragged& ragged, const std::vector<std::size_t>& order,
                                         std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(ragged.rows()));
  for (std::int64_t element = 0; element < ragged.batch(); ++element) {
    const auto own = ragged.sizes(element);
    std::vector<std::int64_t> steps(order.size(), 1);
    for (std::size_t at = 0; at < order.size(); ++at) {
      sizes.push_back(own[order[at]]);
      for (std::size_t behind = order[at] + 1; behind < order.size(); ++behind) {
        steps[at] *= own[behind];
      }
    }
    for (std::int64_t row = 0; row < ragged.rows_of(element); ++row) {
      std::int64_t from = ragged.begin(element), rest = row;
      for (std::size_t at = order.size(); at-- > 0;) {
        from += rest % own[order[at]] * steps[at];
        rest /= own[order[at]];
      }
      rows.push_back(from);
    }
  }
  return rows;
}

}  // namespace

at::Tensor permute_elements(const at::Tensor& tensor, const c10::DimVector& order, bool batch_first) {
  const NestedTensorImpl& impl = *nested(tensor);
  Structure structure = impl.structure();
  at::Tensor values = values_of(tensor);
  c10::DimVector values_order = {0};
  std::vector<std::size_t> ragged_order;
  structure.ragged_dims.clear();
  for (std::size_t at = 0; at < order.size(); ++at) {
    if (impl.structure().is_ragged(order[at])) {
      structure.ragged_dims.push_back(static_cast<std::int64_t>(at));
      ragged_order.push_back(impl.structure().ragged_index(order[at]));
    } else {
      values_order.push_back(impl.structure().values_dim(order[at]));
    }
  }
  structure.batch_first = batch_first;
  bool copies = false;
  if (!std::is_sorted(values_order.begin(), values_order.end())) {
    values = values.permute(values_order);
  }
  if (!std::is_sorted(ragged_order.begin(), ragged_order.end())) {
    std::vector<std::int64_t> sizes;
    const std::vector<std::int64_t> rows = reordered_rows(*structure.ragged, ragged_order, sizes);
    structure.ragged = std::make_shared<Ragged>(structure.batch(), ragged_order.size(), std::move(sizes));
    values = permute_rows(values, rows);
    copies = true;
  }
  const at::Tensor out = wrap(std::move(values), std::move(structure));
  return !copies ? out : write_through(out, tensor, [order, batch_first](const at::Tensor& places) {
    return permute_elements(places, order, batch_first);
  });
}

namespace {

at::Tensor permute(Call& call, const at::Tensor& self, const std::vector<std::int64_t>& dims) {
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const std::int64_t rank = impl.element_rank();
  call.expect(static_cast<std::int64_t>(dims.size()) == rank + 1, "expected an order of ", rank + 1,
              " dimensions, got (", join(dims), ") for a NestedTensor of shape (", join(self.sizes()), ")");
  c10::DimVector order;
  std::optional<std::size_t> batch;
  for (std::size_t at = 0; at < dims.size(); ++at) {
    const auto dim = structure.element_dim(dims[at], rank);
    if (dim) {
      call.expect(std::find(order.begin(), order.end(), *dim) == order.end(), "expected each dimension once, got (",
                  join(dims), ")");
      order.push_back(*dim);
    } else {
      batch = at;
    }
  }
  call.expect(batch && *batch <= 1, "expected the batch to become dimension 0 or 1, got an order of (", join(dims),
              ") for elements ", text_of_shapes(impl), " with the batch at ", structure.batch_dim(rank),
              "; MultiheadAttention and Transformer of LibTorch take (length, batch, ...): x.transpose(0, 1)");
  return permute_elements(self, order, *batch == 0);
}

void call_permute(Call& call) {
  const at::Tensor self = call.tensor("self");
  call.finish(permute(call, self, *call.integers("dims")));
}

std::vector<std::int64_t> natural_order(std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void call_transpose(Call& call) {
  const at::Tensor self = call.tensor("self");
  const auto first =
                 static_cast<std::size_t>(wrapped_dim(call, self, call.integer(call.has("dim0") ? "dim0" : "axis0"))),
             second =
                 static_cast<std::size_t>(wrapped_dim(call, self, call.integer(call.has("dim1") ? "dim1" : "axis1")));
  auto order = natural_order(self.dim());
  std::swap(order[first], order[second]);
  finish_shape(call, permute(call, self, order));
}

/// t, numpy_T, matrix_H and similar: transpose the elements; the batch keeps its place.
void call_transpose_elements(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const std::int64_t rank = impl.element_rank();
  const bool two = call.name() == "t" || call.name() == "t_", all = two || call.name() == "numpy_T";
  call.expect(all ? rank <= 2 || !two : rank >= 2, "expected elements that are matrices, got ", text_of_shapes(impl));
  c10::DimVector order;
  for (const std::int64_t dim : natural_order(rank)) {
    order.push_back(dim);
  }
  if (all) {
    std::reverse(order.begin(), order.end());
  } else {
    std::swap(order[order.size() - 1], order[order.size() - 2]);
  }
  const at::Tensor out = permute_elements(self, order, impl.structure().batch_first);
  const bool conjugates = call.name() == "mH" || call.name() == "adjoint" || call.name() == "matrix_H";
  finish_shape(call, conjugates ? out.conj() : out);
}

}  // namespace

void add_permutations(OperatorTable& table) {
  table.add(Way::packed, call_permute, {"permute"});
  table.add(Way::packed, call_transpose, {"transpose.int", "transpose_", "swapaxes", "swapdims"});
  table.add(Way::packed, call_transpose_elements, {"t", "numpy_T", "mT", "mH", "matrix_H", "adjoint"});
  table.add(Way::packed, call_composite, {"movedim.intlist", "movedim.int", "moveaxis.intlist", "moveaxis.int"});
}

}  // namespace danling::inline v0::detail
