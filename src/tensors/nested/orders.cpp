// Reordering of positions, per sequence along ragged dimensions: flip, roll, rot90.
#include <algorithm>

#include <tensors/nested/along.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

std::int64_t element_dim_of(Call& call, const at::Tensor& self, std::int64_t dim) {
  const NestedTensorImpl& impl = *nested(self);
  const auto found = impl.structure().element_dim(wrapped_dim(call, self, dim), impl.element_rank());
  call.expect(found.has_value(), "expected dimensions of the elements, got the batch, ", dim, ", of elements ",
              text_of_shapes(impl));
  return *found;
}

at::Tensor flip(const at::Tensor& self, std::int64_t dim) {
  const Structure& structure = nested(self)->structure();
  if (!structure.is_ragged(dim)) {
    return wrap(values_of(self).flip(structure.values_dim(dim)), structure);
  }
  const auto sizes = sizes_along(structure, dim);
  return copy_positions(self, dim, sizes, [&](std::int64_t element, std::int64_t position) {
    return sizes[static_cast<std::size_t>(element)] - 1 - position;
  });
}

at::Tensor roll(const at::Tensor& self, std::int64_t dim, std::int64_t shift) {
  const Structure& structure = nested(self)->structure();
  if (!structure.is_ragged(dim)) {
    return wrap(values_of(self).roll(shift, structure.values_dim(dim)), structure);
  }
  const auto sizes = sizes_along(structure, dim);
  return copy_positions(self, dim, sizes, [&](std::int64_t element, std::int64_t position) {
    const std::int64_t size = sizes[static_cast<std::size_t>(element)];
    return (((position - shift) % size) + size) % size;
  });
}

void call_flip(Call& call) {
  at::Tensor self = call.tensor("self");
  std::vector<std::int64_t> dims;
  const auto given =
      call.has("dims") ? *call.integers("dims") : std::vector<std::int64_t>{call.name() == "fliplr" ? 1 : 0};
  for (const std::int64_t dim : given) {
    dims.push_back(element_dim_of(call, self, dim));
    call.expect(std::count(dims.begin(), dims.end(), dims.back()) == 1, "expected each dimension once, got (",
                join(given), ")");
  }
  if (dims.empty()) {
    call.finish(self.clone());
    return;
  }
  for (const std::int64_t dim : dims) {
    self = flip(self, dim);
  }
  call.finish(self);
}

void wait_for_all_ranks(Call& call) {
  at::Tensor self = call.tensor("self");
  const auto shifts = *call.integers("shifts"), dims = *call.integers("dims");
  if (dims.empty()) {
    call.expect(shifts.size() == 1, "expected one shift for all dimensions, got (", join(shifts), ")");
    const NestedTensorImpl& impl = *nested(self);
    if (impl.element_rank() == 1 && impl.structure().is_ragged(0)) {
      call.finish(roll(self, 0, shifts[0]));
      return;
    }
    expect_fallback_allowed(call);
    std::vector<at::Tensor> out;
    for (const at::Tensor& element : elements_of(self)) {
      out.push_back(element.roll(shifts[0]));
    }
    call.finish(nest(out, impl.structure(), impl.structure().ragged_dims));
    return;
  }
  call.expect(shifts.size() == dims.size(), "expected a shift for each dimension, got (", join(shifts), ") and (",
              join(dims), ")");
  for (std::size_t at = 0; at < dims.size(); ++at) {
    self = roll(self, element_dim_of(call, self, dims[at]), shifts[at]);
  }
  call.finish(self);
}

void call_rot90(Call& call) {
  at::Tensor self = call.tensor("self");
  const auto dims = *call.integers("dims");
  call.expect(dims.size() == 2, "expected two dimensions, got (", join(dims), ")");
  const std::int64_t first = element_dim_of(call, self, dims[0]), second = element_dim_of(call, self, dims[1]);
  call.expect(first != second, "expected two dimensions, got (", join(dims), ")");
  const std::int64_t times = ((call.integer("k") % 4) + 4) % 4;
  if (times == 0) {
    call.finish(self.clone());
    return;
  }
  self = flip(self, times == 1 ? second : first);
  if (times == 2) {
    call.finish(flip(self, second));
    return;
  }
  c10::DimVector order;
  for (std::int64_t dim = 0; dim < nested(self)->element_rank(); ++dim) {
    order.push_back(dim == first ? second : dim == second ? first : dim);
  }
  call.finish(permute_elements(self, order, nested(self)->structure().batch_first));
}

}  // namespace

void add_orders(OperatorTable& table) {
  table.add(Way::offsets, call_flip, {"flip", "fliplr", "flipud"});
  table.add(Way::offsets, wait_for_all_ranks, {"roll"});
  table.add(Way::offsets, call_rot90, {"rot90"});
}

}  // namespace danling::inline v0::detail
