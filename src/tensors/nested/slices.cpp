// Selection along one dimension: slice, select, narrow, index_select, unbind, diff.
#include <ATen/ops/cat.h>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/rows.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

/// Returns the dimension of the elements; nullopt for the batch.
std::optional<std::int64_t> dim_of(Call& call, const at::Tensor& self) {
  const std::int64_t dim = wrapped_dim(call, self, call.integer("dim"));
  return nested(self)->structure().element_dim(dim, nested(self)->element_rank());
}

at::Tensor slice(const at::Tensor& self, std::optional<std::int64_t> dim, std::optional<std::int64_t> start,
                 std::optional<std::int64_t> end, std::int64_t step) {
  const Structure& structure = nested(self)->structure();
  if (!dim) {
    const Span span = span_of(structure.batch(), start, end, step);
    std::vector<std::int64_t> elements;
    for (std::int64_t at = 0; at < span.count; ++at) {
      elements.push_back(span.begin + at * step);
    }
    return take_elements(self, elements);
  }
  if (!structure.is_ragged(*dim)) {
    return wrap(values_of(self).slice(structure.values_dim(*dim), start, end, step), structure);
  }
  std::vector<std::int64_t> begins, counts;
  for (const std::int64_t size : sizes_along(structure, *dim)) {
    const Span span = span_of(size, start, end, step);
    begins.push_back(span.begin);
    counts.push_back(span.count);
  }
  return take_positions(self, *dim, counts, [&](std::int64_t element, std::int64_t position) {
    return begins[static_cast<std::size_t>(element)] + position * step;
  });
}

std::optional<std::int64_t> optional_integer(Call& call, std::string_view argument) {
  const auto found = call.integers(argument);
  return found ? std::optional(found->front()) : std::nullopt;
}

void call_slice(Call& call) {
  const at::Tensor self = call.tensor("self");
  const std::int64_t step = call.integer("step");
  call.expect(step >= 1, "expected a step of 1 or above, got ", step, " for elements ", text_of_shapes(*nested(self)));
  call.finish(slice(self, dim_of(call, self), optional_integer(call, "start"), optional_integer(call, "end"), step));
}

void call_narrow(Call& call) {
  const at::Tensor self = call.tensor("self");
  const NestedTensorImpl& impl = *nested(self);
  const auto dim = dim_of(call, self);
  call.expect(!call["start"].isTensor(), "expected a number as start, got a tensor");
  const std::int64_t start = call.integer("start"), length = call.integer("length");
  call.expect(length >= 0, "expected a length of 0 or above, got ", length);
  const auto finish_narrow = [&](at::Tensor out) {
    call.finish(call.name() == "narrow_copy" ? own_copy(out, self) : std::move(out));
  };
  const auto check_size = [&](std::int64_t size) {
    const std::int64_t begin = start < 0 ? start + size : start;
    call.expect(begin >= 0 && begin + length <= size, "expected start ", start, " and length ", length,
                " within each size, got ", size, " along dimension ", call.integer("dim"), " of elements ",
                text_of_shapes(impl));
    return begin;
  };
  if (!dim || !impl.structure().is_ragged(*dim)) {
    const std::int64_t size = dim ? impl.values().size(impl.structure().values_dim(*dim)) : impl.structure().batch();
    const std::int64_t begin = check_size(size);
    finish_narrow(slice(self, dim, begin, begin + length, 1));
    return;
  }
  const auto sizes = sizes_along(impl.structure(), *dim);
  std::vector<std::int64_t> begins;
  for (const std::int64_t size : sizes) {
    begins.push_back(check_size(size));
  }
  finish_narrow(take_positions(self, *dim, std::vector<std::int64_t>(sizes.size(), length),
                               [&](std::int64_t element, std::int64_t position) {
                                 return begins[static_cast<std::size_t>(element)] + position;
                               }));
}

/// Selects one position along a dimension of the elements and removes it. Returns a plain tensor if no ragged dimension
/// remains.
at::Tensor select(Call& call, const at::Tensor& self, std::int64_t dim, std::int64_t index) {
  const NestedTensorImpl& impl = *nested(self);
  Structure structure = impl.structure();
  const auto check_index = [&](std::int64_t size) {
    call.expect(index >= -size && index < size, "expected an index from ", -size, " to ", size - 1, ", got ", index,
                " along dimension ", structure.tensor_dim(dim, impl.element_rank()), " of elements ",
                text_of_shapes(impl));
    return index < 0 ? index + size : index;
  };
  at::Tensor values;
  if (!structure.is_ragged(dim)) {
    const std::int64_t at = structure.values_dim(dim);
    values = values_of(self).select(at, check_index(impl.values().size(at)));
  } else {
    const auto sizes = sizes_along(structure, dim);
    std::vector<std::int64_t> places;
    for (const std::int64_t size : sizes) {
      places.push_back(check_index(size));
    }
    const at::Tensor taken =
        take_positions(self, dim, std::vector<std::int64_t>(sizes.size(), 1),
                       [&](std::int64_t element, std::int64_t) { return places[static_cast<std::size_t>(element)]; });
    values = values_of(taken);
    std::vector<std::int64_t> others;
    const std::size_t gone = structure.ragged_index(dim), rank = structure.ragged->rank();
    for (std::size_t at = 0; at < structure.ragged->all_sizes().size(); ++at) {
      if (at % rank != gone) {
        others.push_back(structure.ragged->all_sizes()[at]);
      }
    }
    structure.ragged_dims.erase(structure.ragged_dims.begin() + static_cast<std::ptrdiff_t>(gone));
    structure.ragged = std::make_shared<Ragged>(structure.batch(), rank - 1, std::move(others));
  }
  for (std::int64_t& ragged : structure.ragged_dims) {
    ragged -= ragged > dim ? 1 : 0;
  }
  // If the dimension before the batch is removed, the batch comes first.
  structure.batch_first = structure.batch_first || dim == 0;
  if (structure.ragged_dims.empty() && impl.element_rank() > 1) {
    return structure.batch_first || values.dim() == 1 ? values : values.transpose(0, 1);
  }
  if (structure.ragged_dims.empty()) {
    return values;
  }
  return wrap(std::move(values), std::move(structure));
}

void call_select(Call& call) {
  const at::Tensor self = call.tensor("self");
  const auto dim = dim_of(call, self);
  const std::int64_t index = call.integer("index");
  if (dim) {
    call.finish(select(call, self, *dim, index));
    return;
  }
  const std::int64_t batch = nested(self)->structure().batch();
  call.expect(index >= -batch && index < batch, "expected an index from ", -batch, " to ", batch - 1, ", got ", index,
              " in a batch of ", text_of_shapes(*nested(self)));
  call.finish(element_of(self, index < 0 ? index + batch : index));
}

void call_unbind(Call& call) {
  const at::Tensor self = call.tensor("self");
  const auto dim = dim_of(call, self);
  if (!dim) {
    call.finish({c10::IValue(elements_of(self))});
    return;
  }
  const NestedTensorImpl& impl = *nested(self);
  call.expect(!impl.structure().is_ragged(*dim), "expected the batch or a static dimension, got dimension ",
              call.integer("dim"), " of elements ", text_of_shapes(impl));
  std::vector<at::Tensor> out;
  for (std::int64_t at = 0; at < impl.values().size(impl.structure().values_dim(*dim)); ++at) {
    out.push_back(select(call, self, *dim, at));
  }
  call.finish({c10::IValue(out)});
}

void call_index_select(Call& call) {
  const at::Tensor self = call.tensor("self"), index = call.tensor("index");
  call.expect(nested(self) != nullptr && nested(index) == nullptr && index.dim() <= 1,
              "expected a NestedTensor and an index of one dimension");
  const auto dim = dim_of(call, self);
  const Structure& structure = nested(self)->structure();
  if (dim && !structure.is_ragged(*dim)) {
    call.finish(wrap(values_of(self).index_select(structure.values_dim(*dim), index), structure));
    return;
  }
  call.finish(take_along(call, self, dim, read_index(index)));
}

void call_diff(Call& call) {
  at::Tensor self = call.tensor("self");
  call.expect(nested(self) != nullptr, "expected a NestedTensor, got one as an edge of a tensor");
  const auto dim = dim_of(call, self);
  call.expect(dim.has_value(), "expected a dimension of the elements, got the batch");
  std::vector<at::Tensor> parts = {self};
  if (call["prepend"].isTensor()) {
    parts.insert(parts.begin(), call.tensor("prepend"));
  }
  if (call["append"].isTensor()) {
    parts.push_back(call.tensor("append"));
  }
  self = parts.size() == 1 ? self : at::cat(parts, call.integer("dim"));
  for (std::int64_t n = call.integer("n"); n > 0; --n) {
    const at::Tensor behind = slice(self, dim, 1, std::nullopt, 1), before = slice(self, dim, 0, -1, 1);
    self = self.scalar_type() == at::kBool ? behind.logical_xor(before) : behind.sub(before);
  }
  call.finish(self);
}

}  // namespace

std::vector<std::int64_t> read_index(const at::Tensor& index) {
  const at::Tensor host = index.to(at::kCPU, at::kLong).contiguous();
  const auto* begin = host.const_data_ptr<std::int64_t>();
  return {begin, begin + host.numel()};
}

at::Tensor take_along(Call& call, const at::Tensor& self, std::optional<std::int64_t> dim,
                      std::vector<std::int64_t> index) {
  const NestedTensorImpl& impl = *nested(self);
  const auto check_index = [&](std::int64_t at, std::int64_t size) {
    call.expect(at >= -size && at < size, "expected indices from ", -size, " to ", size - 1, ", got ", at,
                " for elements ", text_of_shapes(impl));
    return at < 0 ? at + size : at;
  };
  if (!dim) {
    for (std::int64_t& at : index) {
      at = check_index(at, impl.structure().batch());
    }
    return own_copy(take_elements(self, index), self);
  }
  const auto sizes = sizes_along(impl.structure(), *dim);
  return copy_positions(self, *dim, std::vector<std::int64_t>(sizes.size(), static_cast<std::int64_t>(index.size())),
                        [&](std::int64_t element, std::int64_t position) {
                          return check_index(index[static_cast<std::size_t>(position)],
                                             sizes[static_cast<std::size_t>(element)]);
                        });
}

void add_slices(OperatorTable& table) {
  table.add(Way::offsets, call_slice, {"slice.Tensor"});
  table.add(Way::offsets, call_narrow, {"narrow", "narrow_copy"});
  table.add(Way::offsets, call_select, {"select.int"});
  table.add(Way::offsets, call_unbind, {"unbind.int"});
  table.add(Way::offsets, call_index_select, {"index_select"});
  table.add(Way::offsets, call_diff, {"diff"});
}

}  // namespace danling::inline v0::detail
