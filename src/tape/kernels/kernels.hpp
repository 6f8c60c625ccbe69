// Loops of tapes, compiled for each instruction set. Each returns the same bits as the LibTorch kernel of that name.
#pragma once

#include <cstdint>

namespace danling::inline v0::tape {

/// Pooling of planes: rows and columns of input, output, window, stride and padding.
struct Pooling {
  std::int64_t planes = 0;
  std::int64_t in_rows = 0, in_columns = 0, out_rows = 0, out_columns = 0;
  std::int64_t rows = 0, columns = 0, row_step = 0, column_step = 0, row_border = 0, column_border = 0;
};

struct Kernels {
  // Elementwise.
  void (*relu)(const float* x, float* out, std::int64_t n);
  void (*threshold_backward)(const float* gradient, const float* x, float threshold, float* out, std::int64_t n);
  void (*add)(const float* a, const float* b, float* out, std::int64_t n);
  void (*mul)(const float* a, const float* b, float* out, std::int64_t n);
  void (*mul_number)(const float* a, float b, float* out, std::int64_t n);
  void (*div_number)(const float* a, float b, float* out, std::int64_t n);
  void (*add_rows)(const float* a, const float* row, float* out, std::int64_t rows, std::int64_t n);
  /// Maximum of each window and its index in the plane; the last nan wins.
  void (*max_pool)(const Pooling& pooling, const float* in, float* out, std::int64_t* places);
  /// Mersenne Twister: computes the next 624 state words in place; `temper` converts them to output.
  void (*twist)(std::uint32_t* state);
  void (*temper)(const std::uint32_t* state, std::uint32_t* out, std::int64_t n);
  /// Writes 1 where the 53-bit number from two words is below `limit`, else 0.
  void (*below)(const std::uint32_t* words, std::uint64_t limit, float* out, std::int64_t n);
  /// True if this LibTorch exports the functions that exp and log call. Null if exp and log are null.
  bool (*has_math)();
  /// exp and log by LibTorch's vector functions.
  void (*exp)(const float* x, float* out, std::int64_t n);
  void (*log)(const float* x, float* out, std::int64_t n);
  /// Vector width in numbers, which determines the order of LibTorch's sums.
  std::int64_t width = 1;
};

extern const Kernels baseline_kernels, avx2_kernels, avx512_kernels;

/// Returns the loops for the instruction set that LibTorch has chosen.
const Kernels& kernels();

}  // namespace danling::inline v0::tape
