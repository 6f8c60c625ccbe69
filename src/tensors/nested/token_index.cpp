// Indexing of single tokens by index tensors over the batch and all ragged dimensions; nonzero.
#include <tensors/nested/token_index.hpp>

#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/rows.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::detail {
namespace {

/// Converts negative indices and checks the range: an index out of range would read a neighbour's token. Throws on the
/// host; on a device LibTorch's asynchronous assertion fails.
at::Tensor checked(Call& call, const at::Tensor& index, const at::Tensor& size, const NestedTensorImpl& impl) {
  const at::Tensor fits = index.ge(size.neg()).logical_and(index.lt(size)).all();
  if (fits.is_cpu()) {
    call.expect(fits.item<bool>(), "expected indices within the sizes of elements ", text_of_shapes(impl),
                ", got others");
  } else {
    at::_assert_async(fits, "nested_tensor.index: expected indices within the sizes of the elements");
  }
  return at::where(index.lt(0), index + size, index);
}

/// Converts the index of each value among the padded ones to coordinates along the ragged dimensions.
void call_nonzero(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const auto num_ragged = static_cast<std::int64_t>(structure.ragged->rank());
  call.expect(structure.batch_first && (num_ragged == 0 || structure.ragged_dims.back() == num_ragged - 1),
              "expected the batch and the ragged dimensions in front, so that values lie in the order of the indices, ",
              "got elements ", text_of_shapes(impl));
  const at::Tensor found = values_of(self).nonzero(), rows = found.select(1, 0);
  std::vector<at::Tensor> columns = {structure.ragged->elements_on(self.device()).index_select(0, rows)};
  at::Tensor place = structure.ragged->local_places_on(self.device()).index_select(0, rows);
  std::vector<at::Tensor> along(static_cast<std::size_t>(num_ragged));
  for (std::size_t at = along.size(); at-- > 0;) {
    const std::int64_t longest = std::max<std::int64_t>(structure.ragged->longest()[at], 1);
    along[at] = place.remainder(longest);
    place = place.floor_divide(longest);
  }
  columns.insert(columns.end(), along.begin(), along.end());
  for (std::int64_t dim = 1; dim < found.size(1); ++dim) {
    columns.push_back(found.select(1, dim));
  }
  call.finish(at::stack(columns, 1));
}

/// Writes from a row of values, one per valid position of the mask, element by element.
void call_masked_scatter(Call& call) {
  const at::Tensor self = call.tensor("self"), mask = call.tensor("mask"), source = call.tensor("source");
  call.expect(nested(self) != nullptr, "expected a NestedTensor, got one as mask or source of a tensor of shape (",
              join(self.sizes()), ")");
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  call.expect(structure.ragged_dims.empty() ||
                  structure.ragged_dims.back() + 1 == static_cast<std::int64_t>(structure.ragged_dims.size()),
              "expected the ragged dimensions of the elements in front, so that values lie in their order, got ",
              text_of_shapes(impl));
  const NestedTensorImpl* own = nested(mask);
  call.expect(own != nullptr ? own->structure().matches(structure) && own->element_rank() == impl.element_rank()
                             : mask.sizes() == self.sizes(),
              "expected a mask of the same ragged sizes or of the padded shape (", join(self.sizes()),
              "), got one of shape (", join(mask.sizes()), ")");
  const bool in_place = call.is_in_place();
  const at::Tensor values = values_of(self);
  call["self"] = values;
  call["mask"] = (own != nullptr ? values_of(mask) : pack(mask, structure)).expand(values.sizes());
  call["source"] = nested(source) != nullptr ? values_of(source) : source;
  call.run();
  if (in_place) {
    replace_values(self, call.result(0).toTensor());
    call.result(0) = self;
  } else {
    call.result(0) = wrap(call.result(0).toTensor(), structure);
  }
}

}  // namespace

std::optional<std::vector<at::Tensor>> token_indices(Call& call, const at::Tensor& self,
                                                     const std::vector<at::Tensor>& indices) {
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const std::int64_t rank = impl.element_rank();
  const auto index_of = [&](std::int64_t dim) {
    return dim < static_cast<std::int64_t>(indices.size()) ? indices[static_cast<std::size_t>(dim)] : at::Tensor();
  };
  const auto is_plain = [](const at::Tensor& index) {
    return index.defined() && nested(index) == nullptr && index.scalar_type() != at::kBool &&
           index.scalar_type() != at::kByte;
  };
  bool fits = rank > 0 && index_of(0).defined() && is_plain(index_of(structure.batch_dim(rank)));
  bool on_host = true;
  for (const std::int64_t dim : structure.ragged_dims) {
    fits = fits && is_plain(index_of(structure.tensor_dim(dim, rank)));
  }
  if (!fits) {
    return std::nullopt;
  }
  for (const at::Tensor& index : indices) {
    on_host = on_host && (!index.defined() || index.is_cpu());
  }
  const at::Device device = on_host ? at::Device(at::kCPU) : self.device();
  const auto on_device = [&](const at::Tensor& index) { return tensors::moved(index, device, at::kLong); };
  at::Tensor batch = on_device(index_of(structure.batch_dim(rank)));
  batch = checked(call, batch, at::full_like(batch, structure.batch()), impl);
  at::Tensor place;
  for (const std::int64_t dim : structure.ragged_dims) {
    const at::Tensor sizes = row_index(sizes_along(structure, dim), device);
    const at::Tensor size = sizes.index_select(0, batch.reshape({-1})).view(batch.sizes());
    const at::Tensor own = checked(call, on_device(index_of(structure.tensor_dim(dim, rank))), size, impl);
    place = place.defined() ? place * size + own : own;
  }
  const at::Tensor begins =
      structure.ragged->offsets_on(device).index_select(0, batch.reshape({-1})).view(batch.sizes());
  std::vector<at::Tensor> out(static_cast<std::size_t>(impl.values().dim()));
  out[0] = (begins + place).to(self.device(), at::kLong, /*non_blocking=*/true);
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    if (!structure.is_ragged(dim)) {
      out[static_cast<std::size_t>(structure.values_dim(dim))] = index_of(structure.tensor_dim(dim, rank));
    }
  }
  return out;
}

void add_token_index(OperatorTable& table) {
  table.add(Way::offsets, call_nonzero, {"nonzero", "argwhere"});
  table.add(Way::packed, call_masked_scatter, {"masked_scatter"});
}

}  // namespace danling::inline v0::detail
