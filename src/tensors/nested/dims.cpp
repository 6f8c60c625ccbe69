// Dimensions of size 1: squeeze and unsqueeze, expand and repeat.
#include <algorithm>

#include <tensors/nested/along.hpp>
#include <tensors/nested/broadcast.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

/// Inserts a dimension of size 1 at `dim` of the new elements.
at::Tensor insert_dim(const at::Tensor& self, std::int64_t dim) {
  Structure structure = nested(self)->structure();
  for (std::int64_t& ragged : structure.ragged_dims) {
    ragged += ragged >= dim ? 1 : 0;
  }
  const std::int64_t at = structure.values_dim(dim);
  return wrap(values_of(self).unsqueeze(at), std::move(structure));
}

void call_unsqueeze(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const std::int64_t dim = wrapped_dim(call, self, call.integer("dim"), true);
  const std::int64_t batch = impl.structure().batch_dim(impl.element_rank());
  if (dim == 0 && batch == 0) {
    // (1, batch, ...): the new dimension comes first in the elements, and the batch follows it.
    Structure structure = impl.structure();
    structure.batch_first = false;
    finish_shape(call, insert_dim(wrap(values_of(self), std::move(structure)), 0));
    return;
  }
  call.expect(dim > batch, "expected a dimension after the batch, got ", call.integer("dim"), " for elements ",
              text_of_shapes(impl), " with the batch at ", batch);
  finish_shape(call, insert_dim(self, dim - 1));
}

at::Tensor remove_dim(const at::Tensor& self, std::int64_t dim) {
  const NestedTensorImpl& impl = *nested(self);
  Structure structure = impl.structure();
  at::Tensor values = values_of(self);
  if (structure.is_ragged(dim)) {
    // A row stays a row; if this was the last ragged dimension, the element has none.
    const std::size_t gone = structure.ragged_index(dim), rank = structure.ragged->rank();
    std::vector<std::int64_t> sizes;
    for (std::size_t at = 0; at < structure.ragged->all_sizes().size(); ++at) {
      if (at % rank != gone) {
        sizes.push_back(structure.ragged->all_sizes()[at]);
      }
    }
    structure.ragged_dims.erase(structure.ragged_dims.begin() + static_cast<std::ptrdiff_t>(gone));
    structure.ragged = std::make_shared<Ragged>(structure.batch(), rank - 1, std::move(sizes));
  } else {
    values = values.squeeze(structure.values_dim(dim));
  }
  for (std::int64_t& ragged : structure.ragged_dims) {
    ragged -= ragged > dim ? 1 : 0;
  }
  return wrap(std::move(values), std::move(structure));
}

/// Returns true if every element has size 1.
bool is_single(const NestedTensorImpl& impl, std::int64_t dim) {
  const Structure& structure = impl.structure();
  if (!structure.is_ragged(dim)) {
    return impl.values().size(structure.values_dim(dim)) == 1;
  }
  const auto sizes = sizes_along(structure, dim);
  return !sizes.empty() && std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size == 1; });
}

void call_squeeze(Call& call) {
  at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const std::int64_t rank = impl.element_rank();
  std::vector<std::int64_t> dims;
  if (call.has("dim")) {
    const auto chosen = *call.integers("dim");
    for (const std::int64_t given : chosen) {
      const auto dim = impl.structure().element_dim(wrapped_dim(call, self, given), rank);
      call.expect(dim.has_value(), "expected dimensions of the elements, got the batch, ", given, ", of elements ",
                  text_of_shapes(impl));
      dims.push_back(*dim);
    }
  } else {
    for (std::int64_t dim = 0; dim < rank; ++dim) {
      dims.push_back(dim);
    }
  }
  std::sort(dims.rbegin(), dims.rend());
  for (const std::int64_t dim : dims) {
    if (is_single(*nested(self), dim)) {
      // If the dimension before the batch is removed, the batch comes first.
      const bool to_front = dim == 0 && !impl.structure().batch_first;
      Structure structure = nested(self)->structure();
      structure.batch_first = structure.batch_first || to_front;
      self = remove_dim(wrap(values_of(self), std::move(structure)), dim);
    }
  }
  finish_shape(call, self);
}

/// Converts the tensor's sizes to sizes of the values; batch and ragged sizes must not change.
void call_expand(Call& call) {
  at::Tensor self = call.tensor("self");
  auto sizes = call.has("other") ? call.tensor("other").sizes().vec() : *call.integers("size");
  if (nested(self) == nullptr) {
    // Expands a plain tensor to the padded shape, without memory; operators ignore its padding.
    call.finish(self.expand(sizes));
    return;
  }
  call.expect(sizes.size() == static_cast<std::size_t>(self.dim()), "expected ", self.dim(), " sizes for elements ",
              text_of_shapes(*nested(self)), ", got (", join(sizes), ")");
  const NestedTensorImpl& impl = *nested(self);
  const Structure& structure = impl.structure();
  const std::int64_t rank = impl.element_rank();
  auto to = impl.values().sizes().vec();
  for (std::int64_t at = 0; at <= rank; ++at) {
    const auto dim = structure.element_dim(at, rank);
    const std::int64_t size = sizes[static_cast<std::size_t>(at)];
    if (dim && !structure.is_ragged(*dim)) {
      to[static_cast<std::size_t>(structure.values_dim(*dim))] = size;
    } else {
      call.expect(size == -1 || size == self.size(at), "expected unchanged batch and ragged sizes, (",
                  join(self.sizes()), "), got (", join(sizes), ") for elements ", text_of_shapes(impl));
    }
  }
  call.finish(wrap(values_of(self).expand(to), structure));
}

void call_expand_as(Call& call) {
  const at::Tensor self = call.tensor("self"), other = call.tensor("other");
  if (nested(other) == nullptr) {
    call_expand(call);
    return;
  }
  const NestedTensorImpl& like = *nested(other);
  if (const NestedTensorImpl* own = nested(self)) {
    const bool matches = own->structure().matches(like.structure()) && own->element_rank() == like.element_rank();
    const auto values = matches ? std::optional(values_of(self)) : broadcast_nested_to_values(self, like);
    call.expect(values.has_value(), "expected NestedTensors of the same ragged sizes, got ", text_of_shapes(like),
                " and ", text_of_shapes(*own), text_of_layouts(like, *own));
    call.finish(wrap(values->expand(like.values().sizes()), like.structure()));
    return;
  }
  const at::Tensor values = broadcast_to_values(call, self, like);
  call.finish(wrap(values.expand(like.values().sizes()), like.structure()));
}

void call_repeat(Call& call) {
  at::Tensor self = call.tensor("self");
  auto times = *call.integers(call.has("repeats") ? "repeats" : "dims");
  if (call.name() == "tile") {
    times.insert(times.begin(),
                 std::max<std::size_t>(times.size(), static_cast<std::size_t>(self.dim())) - times.size(), 1);
  }
  call.expect(times.size() == static_cast<std::size_t>(self.dim()), "expected ", self.dim(), " numbers for elements ",
              text_of_shapes(*nested(self)), ", got (", join(times), ")");
  const NestedTensorImpl& impl = *nested(self);
  const std::int64_t rank = impl.element_rank();
  std::vector<std::int64_t> of_values(static_cast<std::size_t>(impl.values().dim()), 1);
  for (std::int64_t at = 0; at <= rank; ++at) {
    const std::int64_t count = times[static_cast<std::size_t>(at)];
    call.expect(count >= 0, "expected numbers of 0 or above, got (", join(times), ")");
    const Structure& structure = nested(self)->structure();
    const auto dim = structure.element_dim(at, rank);
    if (dim && !structure.is_ragged(*dim)) {
      of_values[static_cast<std::size_t>(structure.values_dim(*dim))] = count;
    } else if (count != 1 && dim) {
      const auto sizes = sizes_along(structure, *dim);
      auto counts = sizes;
      std::transform(sizes.begin(), sizes.end(), counts.begin(), [&](std::int64_t size) { return size * count; });
      self = copy_positions(self, *dim, counts, [&](std::int64_t element, std::int64_t position) {
        return position % sizes[static_cast<std::size_t>(element)];
      });
    } else if (count != 1) {
      std::vector<std::int64_t> elements;
      for (std::int64_t i = 0; i < count * structure.batch(); ++i) {
        elements.push_back(i % structure.batch());
      }
      self = take_elements(self, elements);
    }
  }
  call.finish(wrap(values_of(self).repeat(of_values), nested(self)->structure()));
}

}  // namespace

void add_dims(OperatorTable& table) {
  table.add(Way::packed, call_unsqueeze, {"unsqueeze"});
  table.add(Way::packed, call_squeeze, {"squeeze", "squeeze.dim", "squeeze.dims"});
  table.add(Way::packed, call_expand, {"expand", "broadcast_to"});
  table.add(Way::packed, call_expand_as, {"expand_as"});
  table.add(Way::offsets, call_repeat, {"repeat", "tile"});
  table.add(
      Way::packed, call_composite,
      {"atleast_1d", "atleast_2d", "atleast_3d", "atleast_1d.Sequence", "atleast_2d.Sequence", "atleast_3d.Sequence"});
}

}  // namespace danling::inline v0::detail
