// Softmax of attention scores: elements that are ragged along the normalized dimension.
#pragma once

#include <tensors/nested/blocks.hpp>

namespace danling::inline v0::detail {

/// Softmax or log-softmax over a dimension of the elements, one call per run of consecutive elements of equal sizes.
/// For elements with two ragged dimensions. Twice differentiable.
at::Tensor softmax_in_blocks(const at::Tensor& values, const Structure& structure, std::int64_t element_dim,
                             bool logarithm);

}  // namespace danling::inline v0::detail
