// Index tensors that name single tokens.
#pragma once

#include <optional>
#include <vector>

#include "tensors/nested/call.hpp"

namespace danling::inline v0::detail {

/// Indices of the values, where there is an index tensor of numbers for the batch and for each ragged dimension, and
/// for dimension 0: then the result is a plain tensor that begins with the indices' shape. Nothing for other indices.
/// @throws DataError for numbers beyond the sizes, on the host
std::optional<std::vector<at::Tensor>> token_indices(Call& call, const at::Tensor& self,
                                                     const std::vector<at::Tensor>& indices);

}  // namespace danling::inline v0::detail
