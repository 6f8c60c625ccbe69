// Sums that keep beside them what rounding leaves out (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
#pragma once

#include <cmath>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Adds `n` times `addend`, of the sums' shape, to `sum`; `rest` takes up what that loses. Both may be changed in
/// place, and are tensors that this function made or contiguous ones of the caller's own. Does not wait.
void add_compensated(at::Tensor& sum, at::Tensor& rest, const at::Tensor& addend, std::int64_t n = 1);

/// The sum of both. Where a sum is not finite the rest says nothing.
inline double whole_sum(double sum, double rest) { return std::isfinite(sum) ? sum + rest : sum; }
at::Tensor whole_sum(const at::Tensor& sum, const at::Tensor& rest);

}  // namespace danling::inline v0::detail
