#include <metrics/exact_sum.hpp>

#include <cmath>
#include <cstddef>
#include <limits>

namespace danling::inline v0::detail {

void ExactSum::add(double addend) {
  std::size_t kept = 0;
  for (const double part : parts_) {
    const bool larger = std::abs(addend) >= std::abs(part);
    const double large = larger ? addend : part;
    const double small = larger ? part : addend;
    const double sum = large + small;
    const double rest = small - (sum - large);
    if (rest != 0.0 && std::isfinite(sum)) {
      parts_[kept++] = rest;
    }
    addend = sum;
  }
  if (!std::isfinite(addend)) {
    not_finite_ += addend;
    return;
  }
  parts_.resize(kept);
  parts_.push_back(addend);
}

double ExactSum::rounded() const {
  if (not_finite_ != 0.0) {
    return std::isnan(not_finite_) ? std::numeric_limits<double>::quiet_NaN() : not_finite_;
  }
  double sum = 0.0;
  double rest = 0.0;
  auto part = parts_.rbegin();
  for (; part != parts_.rend() && rest == 0.0; ++part) {
    const double larger = sum;
    sum = larger + *part;
    rest = *part - (sum - larger);
  }
  // The sum was a tie, rounded to even: the remainder decides the direction.
  if (part != parts_.rend() && ((rest < 0.0 && *part < 0.0) || (rest > 0.0 && *part > 0.0))) {
    const double twice = 2.0 * rest;
    const double other = sum + twice;
    if (other - sum == twice) {
      return other;
    }
  }
  return sum;
}

std::pair<double, double> ExactSum::with_rest() const {
  const double sum = rounded();
  if (!std::isfinite(sum)) {
    return {sum, 0.0};
  }
  ExactSum left = *this;
  left.add(-sum);
  return {sum, left.rounded()};
}

}  // namespace danling::inline v0::detail
