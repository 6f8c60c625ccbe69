// Index tensors that select single tokens.
#pragma once

#include <optional>
#include <vector>

#include <tensors/nested/call.hpp>

namespace danling::inline v0::detail {

/// Returns indices of the values if there is an integer index tensor for the batch, for each ragged dimension and for
/// dimension 0; the result of indexing is then a plain tensor that begins with the indices' shape. Returns nullopt for
/// other indices.
/// @throws DataError for an index out of range, on the host
std::optional<std::vector<at::Tensor>> token_indices(Call& call, const at::Tensor& self,
                                                     const std::vector<at::Tensor>& indices);

}  // namespace danling::inline v0::detail
