// Compensated sums (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
#pragma once

#include <cmath>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// The dtype of sums on a device: float64, but float32 on MPS, which lacks float64.
inline at::ScalarType sum_type(const at::Device& device) { return device.is_mps() ? at::kFloat : at::kDouble; }

/// `sum` / `n`, correctly rounded on all devices. Does not wait.
at::Tensor divided(const at::Tensor& sum, std::int64_t n);

inline void add_compensated(double& sum, double& rest, double addend) {
  const double total = sum + addend;
  const double rounded = total - sum;
  rest += (sum - (total - rounded)) + (addend - rounded);
  sum = total;
}

/// Adds `n` times `addend`, of the sums' shape, to `sum`; `rest` accumulates the rounding errors. May change both in
/// place: each must be contiguous and owned by the caller, or a result of this function. Does not wait.
void add_compensated(at::Tensor& sum, at::Tensor& rest, const at::Tensor& addend, std::int64_t n = 1);

/// The sum of both; ignores `rest` if `sum` is not finite.
inline double whole_sum(double sum, double rest) { return std::isfinite(sum) ? sum + rest : sum; }
at::Tensor whole_sum(const at::Tensor& sum, const at::Tensor& rest);

}  // namespace danling::inline v0::detail
