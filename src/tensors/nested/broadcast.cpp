#include "tensors/nested/broadcast.hpp"

#include <algorithm>

namespace danling::inline v0::detail {

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
  // In the order of the values: batch, ragged, static.
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
  return batch == 1 ? merged(structure.ragged->padded_rows())
                          .index_select(0, structure.ragged->local_places_on(tensor.device()))
                    : merged(batch * structure.ragged->padded_rows())
                          .index_select(0, structure.ragged->padded_places_on(tensor.device()));
}

}  // namespace danling::inline v0::detail
