// Loops of tapes, compiled for each instruction set. Each gives the bits of LibTorch's kernel of the same name.
#pragma once

#include <cstdint>

namespace danling::inline v0::tape {

/// A pooling of planes: rows and columns of input, output, window, step and border.
struct Pooling {
  std::int64_t planes = 0;
  std::int64_t in_rows = 0, in_columns = 0, out_rows = 0, out_columns = 0;
  std::int64_t rows = 0, columns = 0, row_step = 0, column_step = 0, row_border = 0, column_border = 0;
};

struct Kernels {
  // Element by element.
  void (*relu)(const float* x, float* out, std::int64_t n);
  void (*threshold_backward)(const float* gradient, const float* x, float threshold, float* out, std::int64_t n);
  void (*add)(const float* a, const float* b, float* out, std::int64_t n);
  void (*mul)(const float* a, const float* b, float* out, std::int64_t n);
  void (*mul_number)(const float* a, float b, float* out, std::int64_t n);
  void (*div_number)(const float* a, float b, float* out, std::int64_t n);
  void (*add_rows)(const float* a, const float* row, float* out, std::int64_t rows, std::int64_t n);
  /// Largest of each window, and its place in the plane; the last nan wins.
  void (*max_pool)(const Pooling& pooling, const float* in, float* out, std::int64_t* places);
  /// The Mersenne Twister's next 624 words in place, and as it hands them out.
  void (*twist)(std::uint32_t* state);
  void (*temper)(const std::uint32_t* state, std::uint32_t* out, std::int64_t n);
  /// 1 where the number of 53 bits from two words is below `limit`, else 0.
  void (*below)(const std::uint32_t* words, std::uint64_t limit, float* out, std::int64_t n);
  /// Whether this LibTorch has the next two, which call its own functions; null where these are null.
  bool (*has_math)();
  /// exp and log of LibTorch's vectors.
  void (*exp)(const float* x, float* out, std::int64_t n);
  void (*log)(const float* x, float* out, std::int64_t n);
  /// Numbers in a vector: the order of LibTorch's sums.
  std::int64_t width = 1;
};

extern const Kernels baseline_kernels, avx2_kernels, avx512_kernels;

/// Those that LibTorch chose for itself.
const Kernels& kernels();

}  // namespace danling::inline v0::tape
