#include <tensors/nested/broadcast.hpp>

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <tensors/nested/blocks.hpp>

namespace danling::inline v0::detail {
namespace {

/// Returns the rows of all elements in the order of their values, from (1 or batch, ragged sizes..., static sizes...).
/// Needs no index of all rows, which would be large for two ragged dimensions.
at::Tensor rows_by_runs(const at::Tensor& full, const Structure& structure) {
  const auto rank = static_cast<std::int64_t>(structure.ragged->rank());
  const bool differentiable = c10::GradMode::is_enabled() && full.requires_grad();
  c10::DimVector sizes = {structure.ragged->rows()};
  sizes.insert(sizes.end(), full.sizes().begin() + 1 + rank, full.sizes().end());
  at::Tensor out;
  if (!differentiable) {
    out = at::empty(sizes, full.options());
  }
  std::vector<at::Tensor> parts;
  for (const Run& run : runs_of_equal(structure.batch(), {&structure})) {
    const auto own = structure.ragged->sizes(run.first);
    at::Tensor part = full.size(0) == 1 ? full : full.narrow(0, run.first, run.count);
    for (std::int64_t dim = 0; dim < rank; ++dim) {
      part = part.narrow(1 + dim, 0, own[static_cast<std::size_t>(dim)]);
    }
    auto shape = part.sizes().vec();
    shape[0] = run.count;
    part = part.expand(shape);
    if (differentiable) {
      sizes[0] = run.count * structure.ragged->rows_of(run.first);
      parts.push_back(part.reshape(sizes));
    } else {
      const std::int64_t begin = structure.ragged->begin(run.first);
      out.narrow(0, begin, structure.ragged->begin(run.first + run.count) - begin).view(shape).copy_(part);
    }
  }
  return differentiable && !parts.empty() ? at::cat(parts) : differentiable ? at::empty(sizes, full.options()) : out;
}

}  // namespace

at::Tensor broadcast_to_values(Call& call, const at::Tensor& tensor, const NestedTensorImpl& to) {
  if (tensor.dim() == 0) {
    return tensor;
  }
  const Structure& structure = to.structure();
  const std::int64_t rank = to.element_rank(), missing = rank + 1 - tensor.dim();
  const auto refuse = [&] {
    call.refuse("expected a tensor that broadcasts to the padded shape (", join(to.sizes()), ") of elements ",
                text_of_shapes(to), ", got one of shape (", join(tensor.sizes()), ")");
  };
  if (missing < 0) {
    refuse();
  }
  at::Tensor full = tensor;
  for (std::int64_t dim = 0; dim < missing; ++dim) {
    full = full.unsqueeze(0);
  }
  // Order of the values: batch, ragged, static.
  c10::DimVector order = {structure.batch_dim(rank)};
  bool over_rows = false;
  for (const bool ragged : {true, false}) {
    for (std::int64_t dim = 0; dim < rank; ++dim) {
      if (structure.is_ragged(dim) != ragged) {
        continue;
      }
      const std::int64_t at = structure.tensor_dim(dim, rank), size = full.size(at), own = to.size(at);
      if (size != 1 && size != own && (ragged || own != 1)) {
        refuse();
      }
      over_rows = over_rows || (ragged && size != 1);
      order.push_back(at);
    }
  }
  const std::int64_t batch = full.size(order.front());
  if (batch != 1 && batch != structure.batch()) {
    refuse();
  }
  full = full.permute(order);
  const auto ragged_rank = static_cast<std::int64_t>(structure.ragged->rank());
  const auto merged = [&](std::int64_t rows) {
    c10::DimVector sizes = {rows};
    sizes.insert(sizes.end(), full.sizes().begin() + 1 + ragged_rank, full.sizes().end());
    return full.reshape(sizes);
  };
  if (!over_rows) {
    return batch == 1 ? merged(1) : merged(batch).index_select(0, structure.ragged->elements_on(tensor.device()));
  }
  auto sizes = full.sizes().vec();
  std::copy(structure.ragged->longest().begin(), structure.ragged->longest().end(), sizes.begin() + 1);
  full = full.expand(sizes);
  if (ragged_rank > 1) {
    return rows_by_runs(full, structure);
  }
  return batch == 1 ? merged(structure.ragged->padded_rows())
                          .index_select(0, structure.ragged->local_places_on(tensor.device()))
                    : merged(batch * structure.ragged->padded_rows())
                          .index_select(0, structure.ragged->padded_places_on(tensor.device()));
}

std::optional<at::Tensor> broadcast_nested_to_values(const at::Tensor& tensor, const NestedTensorImpl& to) {
  const NestedTensorImpl& impl = *nested(tensor);
  const Structure &from = impl.structure(), &structure = to.structure();
  const std::int64_t rank = to.element_rank();
  if (impl.element_rank() != rank || from.batch() != structure.batch() || from.batch_first != structure.batch_first) {
    return std::nullopt;
  }
  at::Tensor values = values_of(tensor);
  for (std::int64_t dim = rank; dim-- > 0;) {
    if (from.is_ragged(dim)) {
      if (!structure.is_ragged(dim)) {
        return std::nullopt;
      }
    } else if (structure.is_ragged(dim)) {
      if (values.size(from.values_dim(dim)) != 1) {
        return std::nullopt;
      }
      values = values.squeeze(from.values_dim(dim));
    }
  }
  const Ragged &small = *from.ragged, &large = *structure.ragged;
  const at::Tensor index = at::empty({large.rows()}, at::kLong);
  std::int64_t* write = index.mutable_data_ptr<std::int64_t>();
  for (std::int64_t element = 0; element < large.batch(); ++element) {
    const auto sizes = large.sizes(element), own = small.sizes(element);
    for (std::size_t at = 0; at < own.size(); ++at) {
      const std::int64_t size = sizes[structure.ragged_index(from.ragged_dims[at])];
      if (own[at] != 1 && own[at] != size) {
        return std::nullopt;
      }
    }
    for (std::int64_t row = 0; row < large.rows_of(element); ++row) {
      std::int64_t place = small.begin(element), rest = row, stride = 1;
      for (std::size_t at = large.rank(), own_at = own.size(); at-- > 0;) {
        if (own_at > 0 && from.ragged_dims[own_at - 1] == structure.ragged_dims[at]) {
          --own_at;
          place += own[own_at] == 1 ? 0 : rest % sizes[at] * stride;
          stride *= own[own_at];
        }
        rest /= sizes[at];
      }
      *write++ = place;
    }
  }
  return values.index_select(0, index.to(tensor.device(), at::kLong, /*non_blocking=*/true));
}

}  // namespace danling::inline v0::detail
