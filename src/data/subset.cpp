#include <danling/data/subset.hpp>

#include <cmath>

namespace danling::inline v0::data {

void IndexMap::check_within(std::int64_t dataset_size) const {
  for (std::size_t i = 0; i < list_.size(); ++i) {
    check<DataError>(list_[i] >= 0 && list_[i] < dataset_size, "data.subset", "expected indices in [0, ", dataset_size,
                     "), got ", list_[i], " at position ", i);
  }
}

namespace detail {

std::vector<std::int64_t> counts_of(std::span<const double> fractions, std::int64_t size) {
  double sum = 0.0;
  for (const double fraction : fractions) {
    check<DataError>(fraction >= 0.0 && fraction <= 1.0, "data.split", "expected fractions between 0 and 1, got ",
                     fraction);
    sum += fraction;
  }
  constexpr double tolerance = 1e-9;  // 0.7 + 0.2 + 0.1 is not exactly 1
  check<DataError>(sum <= 1.0 + tolerance, "data.split", "expected fractions that add up to at most 1, got ", sum);
  std::vector<std::int64_t> counts;
  std::int64_t left = size;
  for (const double fraction : fractions) {
    counts.push_back(static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(size))));
    left -= counts.back();
  }
  if (sum >= 1.0 - tolerance) {
    for (std::size_t i = 0; left > 0; i = (i + 1) % counts.size(), --left) {
      ++counts[i];
    }
  }
  return counts;
}

void check_counts(std::span<const std::int64_t> counts, std::int64_t size) {
  std::int64_t left = size;
  for (const std::int64_t count : counts) {
    check<DataError>(count >= 0 && count <= left, "data.split", "expected counts of at least 0 that add up to at most ",
                     size, " records, got ", join(counts));
    left -= count;
  }
}

}  // namespace detail

}  // namespace danling::inline v0::data
