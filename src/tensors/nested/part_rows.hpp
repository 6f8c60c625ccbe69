// Conversion between rows of whole elements and rows of their parts: tokens with heads, heads with tokens.
#pragma once

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {

/// (rows, parts, ...) of the elements of `whole` -> (rows * parts, ...), ordered by element, then by part. Accepts any
/// strides. Infinitely differentiable; needs no index of all rows.
at::Tensor rows_of_parts(const at::Tensor& values, const RaggedPtr& whole);
/// The inverse: (rows * parts, ...) -> (rows, parts, ...).
at::Tensor rows_of_wholes(const at::Tensor& values, const RaggedPtr& whole, std::int64_t parts);

}  // namespace danling::inline v0::detail
