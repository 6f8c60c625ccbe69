// LAMB and Adafactor as passes over memory on the CPU, compiled for several instruction sets with the same bits.
#pragma once

#include <optim/rules/kernels.hpp>

namespace danling::inline v0::optim::rules {

/// Whole rows of a contiguous matrix and its gradient.
struct Matrix {
  void* param;
  const void* grad;
  float* master;
  std::int64_t rows, columns;
  std::int64_t first;  ///< index of the first element in its tensor
  std::uint32_t rounding;
  Type param_type, grad_type;
};

/// `T`: float, or double for parameters in float64.
template <class T>
struct LayerwiseKernels {
  /// Updates the moments; adds the squares of the parameter and of the direction to `squares`.
  void (*lamb_moments)(const Span& span, double* squares);
  void (*lamb_step)(const Span& span);
  /// Adds the squares of the gradient by row and by column, and those of the parameter.
  void (*adafactor_sums)(const Matrix& m, double* row_sums, T* column_sums, double* param_squares);
  /// The sum of the squares of gradient * min(row * column, most).
  double (*adafactor_squares)(const Matrix& m, const T* rows, const T* columns, double most);
  /// param = param * keep - step * gradient * min(row * column, most)
  void (*adafactor_step)(const Matrix& m, const T* rows, const T* columns, double most, double keep, double step);
};

struct Layerwise {
  LayerwiseKernels<float> single;
  LayerwiseKernels<double> wide;
  template <class T>
  const LayerwiseKernels<T>& of() const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return single;
    } else {
      return wide;
    }
  }
};

extern const Layerwise baseline_layerwise;
extern const Layerwise avx2_layerwise;
extern const Layerwise avx512_layerwise;

/// The functions for this CPU, limited by ATEN_CPU_CAPABILITY.
const Layerwise& layerwise();

}  // namespace danling::inline v0::optim::rules
