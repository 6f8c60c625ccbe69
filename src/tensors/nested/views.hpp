// Reshaping a nested tensor: how the dimensions of the old and the new shape correspond.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensors/nested/call.hpp"

namespace danling::inline v0::detail {

/// The tensor with the padded shape `sizes`, of which one may be -1. Old and new dimensions correspond as in any
/// reshape of the padded tensor; where a ragged dimension is merged with static ones or divided, so is each of its
/// sizes. The batch may be merged with static dimensions behind it, or divided: the heads of sequences become elements.
/// A shape that does not begin with the batch (and is not one of the padded tensor) is that of each element.
/// @throws DataError with the shapes when it has no such meaning
at::Tensor reshape_nested(Call& call, const at::Tensor& tensor, const std::vector<std::int64_t>& sizes);
/// Dimensions of the elements, from `first` to `last`, in one, which is ragged if one of them is.
at::Tensor flatten_nested(Call& call, const at::Tensor& tensor, std::int64_t first, std::int64_t last);

/// The same where values cannot stay packed. `ragged_dims`: of the result.
at::Tensor flatten_elements(Call& call, const at::Tensor& tensor, std::int64_t first, std::int64_t last,
                            const c10::DimVector& ragged_dims);
/// `to`: without the batch. Nothing when an element has no such shape.
std::optional<at::Tensor> reshape_elements(Call& call, const at::Tensor& tensor, const std::vector<std::int64_t>& to);
/// Of a batch without elements: the given sizes, ragged where the elements were.
at::Tensor reshape_empty(const at::Tensor& tensor, const std::vector<std::int64_t>& to);

}  // namespace danling::inline v0::detail
