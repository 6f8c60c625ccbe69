// Rows of whole elements as rows of their parts, and back: tokens with their heads, heads with their tokens.
#pragma once

#include "tensors/nested/impl.hpp"

namespace danling::inline v0::detail {

/// (rows, parts, ...) of the elements of `whole` -> (rows * parts, ...): element by element, part by part. The values
/// may have any strides. Differentiable, any number of times; no index of all rows is made.
at::Tensor rows_of_parts(const at::Tensor& values, const RaggedPtr& whole);
/// The inverse: (rows * parts, ...) -> (rows, parts, ...).
at::Tensor rows_of_wholes(const at::Tensor& values, const RaggedPtr& whole, std::int64_t parts);

}  // namespace danling::inline v0::detail
