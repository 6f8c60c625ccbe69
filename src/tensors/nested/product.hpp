// Matrix products of the elements of two nested tensors.
#pragma once

#include <tensors/nested/blocks.hpp>

namespace danling::inline v0::detail {

/// Multiplies each element of `a` (..., m, k) with that of `b` (..., k, n). The result has the layout `out` and the
/// tensor `sizes`. Dimensions before the last two are equal in all three. Infinitely differentiable.
at::Tensor product(const at::Tensor& a, const Layout& a_layout, const at::Tensor& b, const Layout& b_layout,
                   const Layout& out, std::vector<std::int64_t> sizes, std::int64_t batch);

}  // namespace danling::inline v0::detail
