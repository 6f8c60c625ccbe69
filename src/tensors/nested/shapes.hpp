// Helpers of operators that change shapes.
#pragma once

#include <tensors/nested/call.hpp>

namespace danling::inline v0::detail {

/// Converts `dim` to 0 or above; with `insert`, for a tensor with one more dimension.
/// @throws DataError with the shapes
std::int64_t wrapped_dim(Call& call, const at::Tensor& tensor, std::int64_t dim, bool insert = false);
/// Sets the result; for an in-place operator also updates shape and values of its first argument.
void finish_shape(Call& call, at::Tensor result);
/// Permutes the dimensions of the elements.
at::Tensor permute_elements(const at::Tensor& tensor, const c10::DimVector& order, bool batch_first);

/// Reads indices on the host; waits if they are on a device.
std::vector<std::int64_t> read_index(const at::Tensor& index);
/// Selects elements, or positions along a ragged dimension, by index; negative indices count from the end.
at::Tensor take_along(Call& call, const at::Tensor& self, std::optional<std::int64_t> element_dim,
                      std::vector<std::int64_t> index);
/// Packs a padded batch with fixed sizes into a nested tensor with the ragged dimensions of `like`.
at::Tensor nest_padded(Call& call, const at::Tensor& tensor, const Structure& like);

}  // namespace danling::inline v0::detail
