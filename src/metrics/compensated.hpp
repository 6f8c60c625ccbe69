// Compensated sums (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
#pragma once

#include <cmath>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Adds `n` times `addend`, of the sums' shape, to `sum`; `rest` collects the rounding errors. Both may be changed in
/// place; each must be contiguous and owned by the caller, or a result of this function. Does not wait.
void add_compensated(at::Tensor& sum, at::Tensor& rest, const at::Tensor& addend, std::int64_t n = 1);

/// The sum of both. If a sum is not finite, the rest has no meaning.
inline double whole_sum(double sum, double rest) { return std::isfinite(sum) ? sum + rest : sum; }
at::Tensor whole_sum(const at::Tensor& sum, const at::Tensor& rest);

}  // namespace danling::inline v0::detail
