// Matrix products of the elements of two nested tensors.
#pragma once

#include "tensors/nested/blocks.hpp"

namespace danling::inline v0::detail {

/// Each element of `a` (..., m, k) times that of `b` (..., k, n), laid out as `out`, whose tensor has `sizes`.
/// Dimensions before the last two are equal in all three. Differentiable, any number of times.
at::Tensor product(const at::Tensor& a, const Layout& a_layout, const at::Tensor& b, const Layout& b_layout,
                   const Layout& out, std::vector<std::int64_t> sizes, std::int64_t batch);

}  // namespace danling::inline v0::detail
