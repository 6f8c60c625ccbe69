// Operators that reshape: view, reshape, flatten and their like.
#include "tensors/nested/operators.hpp"
#include "tensors/nested/shapes.hpp"
#include "tensors/nested/views.hpp"

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
              "expected a tensor that is no leaf to change its shape, got one");
  impl.set_structure(nested(result)->values(), nested(result)->structure());
  replace_values(self, impl.values());
  call.finish(self);
}

namespace {

void call_view(Call& call) {
  const at::Tensor self = call.tensor("self");
  call.finish(reshape_nested(call, self, *call.integers(call.has("size") ? "size" : "shape")));
}

void call_view_as(Call& call) {
  const at::Tensor self = call.tensor("self"), other = call.tensor("other");
  if (nested(self) == nullptr) {
    call.finish(self.reshape(other.sizes()));
    return;
  }
  call.finish(reshape_nested(call, self, other.sizes().vec()));
}

/// Of dimensions of the elements. The first two dimensions of a batch of lists, flattened, are the lists themselves:
/// with the batch it would be a padded tensor, which is for the caller to make.
void call_flatten(Call& call) {
  const at::Tensor self = call.tensor("self");
  const std::int64_t begin = wrapped_dim(call, self, call.integer("start_dim")),
                     end = wrapped_dim(call, self, call.integer("end_dim"));
  call.expect(begin <= end, "expected start_dim up to end_dim, got ", begin, " and ", end);
  std::vector<std::int64_t> sizes;
  bool inferred = false;
  for (std::int64_t dim = 0; dim < self.dim(); ++dim) {
    if (dim <= begin || dim > end) {
      sizes.push_back(self.size(dim));
    } else {
      sizes.back() *= self.size(dim);
      inferred = true;
    }
  }
  if (inferred && self.numel() != 0) {
    sizes[static_cast<std::size_t>(begin)] = -1;
  }
  const NestedTensorImpl& impl = *nested(self);
  const std::int64_t batch = impl.structure().batch_dim(impl.element_rank());
  call.expect(!inferred || batch < begin || batch > end, "expected dimensions of the elements, got ", begin, " to ",
              end, " with the batch, ", batch, ", of elements ", text_of_shapes(impl),
              "; concat() has all tokens in a row, tensor() the padded ones");
  call.finish(reshape_nested(call, self, sizes));
}

void call_unflatten(Call& call) {
  const at::Tensor self = call.tensor("self");
  const auto dim = static_cast<std::ptrdiff_t>(wrapped_dim(call, self, call.integer("dim")));
  const std::vector<std::int64_t> parts = *call.integers("sizes");
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin() + dim, parts.begin(), parts.end());
  call.finish(reshape_nested(call, self, sizes));
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
