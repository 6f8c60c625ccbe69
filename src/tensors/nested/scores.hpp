// Softmax of scores: of elements that are ragged in the dimension that it normalizes.
#pragma once

#include "tensors/nested/blocks.hpp"

namespace danling::inline v0::detail {

/// Softmax, or its logarithm, over a dimension of the elements, one call for all elements of equal sizes that follow
/// one another: the right way when elements have two ragged dimensions. Differentiable, twice too.
at::Tensor softmax_in_blocks(const at::Tensor& values, const Structure& structure, std::int64_t element_dim,
                             bool logarithm);

}  // namespace danling::inline v0::detail
