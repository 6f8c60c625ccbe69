// log(sum(exp(row))) in two passes: one for the highest score, one for the sum.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace danling::inline v0::metrics::detail {

/// The highest score of a row and the logarithm of the sum of exp(score - highest). Separate, so that large scores lose
/// no digits.
struct LogSumExp {
  double highest;
  double rest;
};

/// For `row` [n] of float or c10::BFloat16, n > 0; relative error of a term below 2e-7. NaN when a score is NaN or the
/// highest is infinite.
template <class T>
LogSumExp log_sum_exp(const T* row, std::int64_t n);

}  // namespace danling::inline v0::metrics::detail
