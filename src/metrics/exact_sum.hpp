// Exact sums of float64 numbers.
#pragma once

#include <utility>
#include <vector>

namespace danling::inline v0::detail {

/// Adds numbers without any rounding (Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997), so that neither
/// their order nor their grouping shows in the result.
class ExactSum {
 public:
  void add(double addend);
  /// The float64 nearest to the sum; of two at the same distance, the even one. nan if an addend was, or if there were
  /// infinities of both signs.
  double rounded() const;
  /// `rounded()`, and the float64 nearest to the rest; 0 if the sum is not finite.
  std::pair<double, double> with_rest() const;

 private:
  /// Their sum is the exact one; no two have a bit in common; from the smallest to the largest.
  std::vector<double> parts_;
  double not_finite_ = 0.0;  // the sum of infinite and nan addends
};

}  // namespace danling::inline v0::detail
