// Operators that reshape: view, reshape, flatten and similar.
#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>
#include <tensors/nested/views.hpp>

namespace danling::inline v0::detail {

std::int64_t wrapped_dim(Call& call, const at::Tensor& tensor, std::int64_t dim, bool insert) {
  const std::int64_t rank = tensor.dim() + (insert ? 1 : 0);
  call.expect(dim >= -rank && dim < rank, "expected a dimension from ", -rank, " to ", rank - 1, " of shape (",
              join(tensor.sizes()), "), got ", dim);
  return dim < 0 ? dim + rank : dim;
}

void finish_shape(Call& call, at::Tensor result) {
  if (!call.is_in_place()) {
    call.finish(std::move(result));
    return;
  }
  const at::Tensor self = call[0].toTensor();
  NestedTensorImpl& impl = *nested(self);
  call.expect(!self.is_leaf() || !self.requires_grad(),
              "expected a tensor that is not a leaf, to change its shape, got a leaf");
  impl.set_structure(nested(result)->values(), nested(result)->structure());
  replace_values(self, impl.values());
  call.finish(self);
}

namespace {

void finish_reshape(Call& call, const at::Tensor& self, const std::vector<std::int64_t>& sizes) {
  call.finish(write_through(reshape_nested(call, self, sizes), self,
                            [sizes](const at::Tensor& places) { return places.reshape(sizes); }));
}

void call_view(Call& call) {
  const at::Tensor self = call.tensor("self");
  finish_reshape(call, self, *call.integers(call.has("size") ? "size" : "shape"));
}

void call_view_as(Call& call) {
  const at::Tensor self = call.tensor("self"), other = call.tensor("other");
  if (nested(self) == nullptr) {
    call.finish(self.reshape(other.sizes()));
    return;
  }
  finish_reshape(call, self, other.sizes().vec());
}

/// Flattens dimensions of the elements. To flatten the batch too, the caller must create a padded tensor.
void call_flatten(Call& call) {
  const at::Tensor self = call.tensor("self");
  const std::int64_t begin = wrapped_dim(call, self, call.integer("start_dim")),
                     end = wrapped_dim(call, self, call.integer("end_dim"));
  call.expect(begin <= end, "expected start_dim up to end_dim, got ", begin, " and ", end);
  if (begin == end) {
    call.finish(wrap(values_of(self), nested(self)->structure()));
    return;
  }
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const std::int64_t rank = impl.element_rank(), batch = structure.batch_dim(rank);
  call.expect(batch < begin || batch > end, "expected dimensions of the elements, got ", begin, " to ", end,
              " with the batch, ", batch, ", of elements ", text_of_shapes(impl),
              "; concat() returns all tokens in one row, tensor() the padded tensor");
  const std::int64_t first = *structure.element_dim(begin, rank), last = *structure.element_dim(end, rank);
  call.finish(write_through(flatten_nested(call, self, first, last), self,
                            [begin, end](const at::Tensor& places) { return places.flatten(begin, end); }));
}

void call_unflatten(Call& call) {
  const at::Tensor self = call.tensor("self");
  const auto dim = static_cast<std::ptrdiff_t>(wrapped_dim(call, self, call.integer("dim")));
  const std::vector<std::int64_t> parts = *call.integers("sizes");
  const NestedTensorImpl& impl = *nested(self);
  const auto own = impl.structure().element_dim(dim, impl.element_rank());
  if (own && !impl.structure().is_ragged(*own)) {
    Structure structure = impl.structure();
    for (std::int64_t& ragged : structure.ragged_dims) {
      ragged += ragged > *own ? std::ssize(parts) - 1 : 0;
    }
    const at::Tensor values = values_of(self).unflatten(structure.values_dim(*own), parts);
    call.finish(wrap(values, std::move(structure)));
    return;
  }
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin() + dim, parts.begin(), parts.end());
  finish_reshape(call, self, sizes);
}

}  // namespace

void add_views(OperatorTable& table) {
  table.add(Way::packed, call_elementwise, {"view.dtype"});
  table.add(Way::packed, call_view, {"view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy"});
  table.add(Way::packed, call_view_as, {"view_as", "reshape_as"});
  table.add(Way::packed, call_flatten, {"flatten.using_ints"});
  table.add(Way::packed, call_unflatten, {"unflatten.int"});
}

}  // namespace danling::inline v0::detail
