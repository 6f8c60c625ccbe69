// Exact sums of float64 numbers.
#pragma once

#include <utility>
#include <vector>

namespace danling::inline v0::detail {

/// Adds numbers without rounding (Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997): the result depends on
/// neither order nor grouping.
class ExactSum {
 public:
  void add(double addend);
  /// The float64 nearest to the sum, ties to even. nan if an addend is nan, or if there are infinities of both signs.
  double rounded() const;
  /// `rounded()`, and the float64 nearest to the remainder; 0 if the sum is not finite.
  std::pair<double, double> with_rest() const;

 private:
  /// Non-overlapping parts whose sum is exact, in increasing magnitude.
  std::vector<double> parts_;
  double not_finite_ = 0.0;  // the sum of infinite and nan addends
};

}  // namespace danling::inline v0::detail
