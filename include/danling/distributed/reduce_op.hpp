// Reduction operations of collectives.
#pragma once

namespace danling::inline v0 {

/// Reduction over ranks. For bool, `sum` and `max` are a logical or, `product` and `min` a logical and. `mean` needs
/// floating-point tensors, the bit operations integers or bools. The result of `min` and `max` with a NaN is
/// unspecified.
enum class ReduceOp { sum, mean, product, min, max, bit_and, bit_or, bit_xor };

constexpr const char* name_of(ReduceOp op) {
  constexpr const char* names[] = {"sum", "mean", "product", "min", "max", "bit_and", "bit_or", "bit_xor"};
  return names[static_cast<int>(op)];
}

}  // namespace danling::inline v0
