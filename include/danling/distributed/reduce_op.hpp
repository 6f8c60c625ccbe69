// Operations by which ranks combine their numbers.
#pragma once

namespace danling::inline v0 {

/// How a reduction combines the numbers of all ranks. Bools are true and false instead of 1 and 0: their `sum` and
/// `max` are true where any is, `product` and `min` where all are. `mean` is for floating numbers, the bit operations
/// for integers and bools. Which of a number and a NaN `min` and `max` return is open.
enum class ReduceOp { sum, mean, product, min, max, bit_and, bit_or, bit_xor };

constexpr const char* name_of(ReduceOp op) {
  constexpr const char* names[] = {"sum", "mean", "product", "min", "max", "bit_and", "bit_or", "bit_xor"};
  return names[static_cast<int>(op)];
}

}  // namespace danling::inline v0
