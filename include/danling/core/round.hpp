// Rounds numbers and results to decimal digits.
#pragma once

#include <danling/core/result.hpp>

namespace danling::inline v0 {

/// Rounds to `digits` digits after the decimal point, as Python's round() does: 2.675 becomes 2.67, since the double is
/// less than 2.675. Returns NaN and infinities unchanged.
double round_to(double value, int digits);

/// Returns the result with every number rounded (DanLing's `round(result, 4)`).
Result rounded(const Result& result, int digits = 4);

}  // namespace danling::inline v0
