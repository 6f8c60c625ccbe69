// Histogram: how the numbers of a tensor are distributed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace danling::inline v0 {

/// Counts of finite numbers in bins of equal width.
struct Histogram {
  double min = 0.0, max = 0.0;
  double sum = 0.0, sum_of_squares = 0.0;
  std::int64_t count = 0;
  std::int64_t nonfinite = 0;  ///< numbers that are left out
  /// Bin i holds the numbers from its lower limit, which is that of bin i - 1 (or `min`), to limits[i]. The last limit
  /// is `max`, which its bin includes. Empty without finite numbers.
  std::vector<double> limits;
  std::vector<std::int64_t> counts;
};

/// Of numbers in memory. Equal numbers have one bin. @throws Error for `bins` below 1
Histogram make_histogram(std::span<const float> numbers, std::int64_t bins = 64);
Histogram make_histogram(std::span<const double> numbers, std::int64_t bins = 64);

}  // namespace danling::inline v0
