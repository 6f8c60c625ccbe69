// Update rules as one pass over memory on the CPU, compiled for several instruction sets with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace danling::inline v0::optim::rules {

/// `average` is not an optimizer: it moves the parameter towards the gradient by a weight.
enum class Kernel : std::uint8_t {
  average,
  plain_sgd,
  momentum_sgd,
  nesterov_sgd,
  asgd,
  rprop,
  lion,
  adadelta,
  adagrad,
  rmsprop,
  rmsprop_momentum,
  rmsprop_centered,
  rmsprop_momentum_centered,
  adam,
  adam_amsgrad,
  adamax,
  nadam,
  radam,
};
inline constexpr std::size_t kernel_count = 18;

enum class Type : std::uint8_t { float32, float64, bfloat16, float16 };
inline constexpr std::size_t size_of(Type type) { return type == Type::float32 ? 4 : type == Type::float64 ? 8 : 2; }

/// Contiguous elements of a parameter, its gradient and its state. Computes two-byte dtypes and float32 in float32,
/// float64 in float64.
struct Span {
  void* param;
  const void* grad;
  void* state[3];
  float* master;  ///< float32 copy from which a narrower parameter is rounded; or null
  std::int64_t count;
  std::int64_t first;       ///< index of the first element in its tensor
  const double* constants;  ///< the first multiplies the gradient, except in `average`
  std::uint32_t rounding;   ///< key of stochastic rounding to bfloat16; 0 rounds to nearest
  Type param_type, grad_type, state_type;

  /// `length` elements from `offset`.
  Span part(std::int64_t offset, std::int64_t length) const;
};

/// Functions for one instruction set.
struct Kernels {
  const char* name;
  void (*update[kernel_count])(const Span& span);
  /// The sum of squares in float64: finite exactly if all elements are, unless a square of a float64 overflows.
  double (*sum_squares)(const void* values, Type type, std::int64_t count);
};

extern const Kernels baseline_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;

/// The functions for this CPU, limited by ATEN_CPU_CAPABILITY.
const Kernels& kernels();

}  // namespace danling::inline v0::optim::rules
