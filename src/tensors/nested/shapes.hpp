// Shared by the operators that change shapes.
#pragma once

#include "tensors/nested/call.hpp"

namespace danling::inline v0::detail {

/// From 0, of a tensor with one more dimension for `insert`.
/// @throws DataError with the shapes
std::int64_t wrapped_dim(Call& call, const at::Tensor& tensor, std::int64_t dim, bool insert = false);
/// Elements with their dimensions in another order.
at::Tensor permute_elements(const at::Tensor& tensor, const c10::DimVector& order, bool batch_first);

}  // namespace danling::inline v0::detail
