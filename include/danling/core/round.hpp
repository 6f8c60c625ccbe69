// Numbers and results rounded to decimal digits.
#pragma once

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// The number nearest to the decimal with `digits` digits behind the point, as Python's round() gives it: 2.675 becomes
/// 2.67, since the double lies below 2.675. What is not finite stays as it is.
double round_to(double value, int digits);

/// The result with every number rounded (DanLing's `round(result, 4)`).
Result rounded(const Result& result, int digits = 4);

}  // namespace danling::inline v0
