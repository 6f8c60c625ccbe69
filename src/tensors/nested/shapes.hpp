// Shared by the operators that change shapes.
#pragma once

#include "tensors/nested/call.hpp"

namespace danling::inline v0::detail {

/// From 0, of a tensor with one more dimension for `insert`.
/// @throws DataError with the shapes
std::int64_t wrapped_dim(Call& call, const at::Tensor& tensor, std::int64_t dim, bool insert = false);
/// The result; of an operator that works in place also the new shape and values of its first argument.
void finish_shape(Call& call, at::Tensor result);
/// Elements with their dimensions in another order.
at::Tensor permute_elements(const at::Tensor& tensor, const c10::DimVector& order, bool batch_first);

/// Numbers on the host; waits for the device when they are not there.
std::vector<std::int64_t> read_index(const at::Tensor& index);
/// Elements, or positions along a ragged dimension, of these numbers; negative ones count from each end.
at::Tensor take_along(Call& call, const at::Tensor& self, std::optional<std::int64_t> element_dim,
                      std::vector<std::int64_t> index);
/// The batch, along which the sizes are fixed, as a nested tensor: with the ragged dimensions of `like`.
at::Tensor nest_padded(Call& call, const at::Tensor& tensor, const Structure& like);

}  // namespace danling::inline v0::detail
