#include <danling/telemetry/histogram.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <danling/core/error.hpp>

namespace danling::inline v0 {
namespace {

template <class T>
Histogram make(std::span<const T> numbers, std::int64_t bins) {
  check<Error>(bins >= 1, "histogram", "expected at least one bin, got ", bins);
  Histogram out;
  T least = std::numeric_limits<T>::infinity(), most = -least;
  for (const T number : numbers) {
    if (std::isfinite(number)) {
      const auto wide = static_cast<double>(number);
      ++out.count;
      out.sum += wide;
      out.sum_of_squares += wide * wide;
      least = std::min(least, number);
      most = std::max(most, number);
    }
  }
  out.nonfinite = static_cast<std::int64_t>(numbers.size()) - out.count;
  if (out.count == 0) {
    return out;
  }
  out.min = static_cast<double>(least);
  out.max = static_cast<double>(most);
  // Divides before subtracting, since max - min may overflow.
  const double width = out.max / static_cast<double>(bins) - out.min / static_cast<double>(bins);
  if (!(width > 0)) {
    out.limits = {out.max};
    out.counts = {out.count};
    return out;
  }
  for (std::int64_t bin = 1; bin < bins; ++bin) {
    out.limits.push_back(out.min + width * static_cast<double>(bin));
  }
  out.limits.push_back(out.max);
  out.counts.assign(static_cast<std::size_t>(bins), 0);
  const std::size_t last = out.counts.size() - 1;
  for (const T number : numbers) {
    if (std::isfinite(number)) {
      const auto wide = static_cast<double>(number);
      auto bin = std::min(static_cast<std::size_t>(std::max(wide / width - out.min / width, 0.0)), last);
      // The quotients are rounded, so correct the bin by the limits.
      while (bin < last && wide >= out.limits[bin]) {
        ++bin;
      }
      while (bin > 0 && wide < out.limits[bin - 1]) {
        --bin;
      }
      ++out.counts[bin];
    }
  }
  return out;
}

}  // namespace

Histogram make_histogram(std::span<const float> numbers, std::int64_t bins) { return make(numbers, bins); }
Histogram make_histogram(std::span<const double> numbers, std::int64_t bins) { return make(numbers, bins); }

}  // namespace danling::inline v0
