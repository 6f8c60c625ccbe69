// Numbers and results rounded to decimal digits.
#pragma once

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// The number nearest to the decimal with `digits` decimal digits, as Python's round() returns: 2.675 becomes
/// 2.67, since the double lies below 2.675. NaN and infinities are returned unchanged.
double round_to(double value, int digits);

/// The result with every number rounded (DanLing's `round(result, 4)`).
Result rounded(const Result& result, int digits = 4);

}  // namespace danling::inline v0
