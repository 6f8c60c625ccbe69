// Reshaping of nested tensors: maps dimensions of the old shape to the new one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tensors/nested/call.hpp>

namespace danling::inline v0::detail {

/// Reshapes to the padded shape `sizes`, of which one may be -1. Dimensions correspond as in a reshape of the padded
/// tensor: if a ragged dimension is merged with static ones or divided, so is each of its sizes. The batch may be
/// merged with static dimensions after it, or divided (heads of sequences become elements). A shape that does not begin
/// with the batch, and is not a padded shape, is the shape of each element.
/// @throws DataError with the shapes if neither applies
at::Tensor reshape_nested(Call& call, const at::Tensor& tensor, const std::vector<std::int64_t>& sizes);
/// Flattens dimensions `first` to `last` of the elements into one, which is ragged if any of them is.
at::Tensor flatten_nested(Call& call, const at::Tensor& tensor, std::int64_t first, std::int64_t last);

/// As above, if values cannot stay packed. `ragged_dims`: of the result.
at::Tensor flatten_elements(Call& call, const at::Tensor& tensor, std::int64_t first, std::int64_t last,
                            const c10::DimVector& ragged_dims);
/// `to`: without the batch. Returns nullopt if an element cannot have this shape.
std::optional<at::Tensor> reshape_elements(Call& call, const at::Tensor& tensor, const std::vector<std::int64_t>& to);
/// Reshapes an empty batch to these sizes; ragged dimensions as before.
at::Tensor reshape_empty(const at::Tensor& tensor, const std::vector<std::int64_t>& to);

}  // namespace danling::inline v0::detail
