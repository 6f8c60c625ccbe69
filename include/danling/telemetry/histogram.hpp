// Histogram: the distribution of the numbers of a tensor.
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
  std::int64_t nonfinite = 0;  ///< number of NaNs and infinities, which the bins omit
  /// Bin i counts the numbers from limits[i - 1] (bin 0: from `min`) to limits[i], excluded. The last limit is `max`,
  /// which the last bin includes. Empty without finite numbers.
  std::vector<double> limits;
  std::vector<std::int64_t> counts;
};

/// Computes the histogram of numbers in host memory. If all numbers are equal, there is one bin. @throws Error for
/// `bins` below 1
Histogram make_histogram(std::span<const float> numbers, std::int64_t bins = 64);
Histogram make_histogram(std::span<const double> numbers, std::int64_t bins = 64);

}  // namespace danling::inline v0
