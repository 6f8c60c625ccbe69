// The loops of kernels.hpp. Each kernels_*.cpp compiles them for its instruction set, without fused multiply-add.
#pragma once

#include <cstdint>

#include <tape/kernels/kernels.hpp>

namespace danling::inline v0::tape {
namespace {

constexpr std::int64_t state_words = 624;
constexpr std::int64_t far = 397;

void relu(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = x[i] < 0.0F ? 0.0F : x[i];  // keeps nan and -0
  }
}

void threshold_backward(const float* gradient, const float* x, float threshold, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = x[i] <= threshold ? 0.0F : gradient[i];
  }
}

void add(const float* a, const float* b, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = a[i] + b[i];
  }
}

void mul(const float* a, const float* b, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = a[i] * b[i];
  }
}

void mul_number(const float* a, float b, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = a[i] * b;
  }
}

void div_number(const float* a, float b, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = a[i] / b;
  }
}

void add_rows(const float* a, const float* row, float* out, std::int64_t rows, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r) {
    add(a + r * n, row, out + r * n, n);
  }
}

/// Non-overlapping windows of 2 x 2 without remaining columns, the most common case. Reduces pairs of columns over many
/// rows, then pairs of rows, without branches.
void max_pool_2(const Pooling& p, const float* in, float* out, std::int64_t* places) {
  constexpr std::int64_t block = 1024;
  const std::int64_t n = p.out_columns;
  const std::int64_t rows_at_once = block / (2 * n);
  float most[block];
  std::int32_t place[block];
  for (std::int64_t plane = 0; plane < p.planes; ++plane) {
    for (std::int64_t begin = 0; begin < p.out_rows; begin += rows_at_once) {
      const std::int64_t rows = p.out_rows - begin < rows_at_once ? p.out_rows - begin : rows_at_once;
      const std::int64_t first = 2 * begin * p.in_columns;
      const float* const from = in + plane * p.in_rows * p.in_columns + first;
      for (std::int64_t i = 0; i < 2 * rows * n; ++i) {
        const float a = from[2 * i];
        const float b = from[2 * i + 1];
        const bool more = (b > a) | (b != b);
        most[i] = more ? b : a;
        place[i] = static_cast<std::int32_t>(2 * i) + (more ? 1 : 0);
      }
      float* const to = out + (plane * p.out_rows + begin) * n;
      std::int64_t* const at = places + (plane * p.out_rows + begin) * n;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < n; ++c) {
          const float a = most[2 * r * n + c];
          const float b = most[(2 * r + 1) * n + c];
          const bool more = (b > a) | (b != b);
          to[r * n + c] = more ? b : a;
          at[r * n + c] = first + (more ? place[(2 * r + 1) * n + c] : place[2 * r * n + c]);
        }
      }
    }
  }
}

void max_pool(const Pooling& p, const float* in, float* out, std::int64_t* places) {
  if (p.rows == 2 && p.columns == 2 && p.row_step == 2 && p.column_step == 2 && p.row_border == 0 &&
      p.column_border == 0 && 2 * p.out_rows <= p.in_rows && 2 * p.out_columns == p.in_columns &&
      p.out_columns <= 512) {
    max_pool_2(p, in, out, places);
    return;
  }
  const auto at_least_zero = [](std::int64_t n) { return n < 0 ? 0 : n; };
  const auto at_most = [](std::int64_t n, std::int64_t limit) { return n > limit ? limit : n; };
  for (std::int64_t plane = 0; plane < p.planes; ++plane) {
    const float* const from = in + plane * p.in_rows * p.in_columns;
    for (std::int64_t r = 0; r < p.out_rows; ++r) {
      const std::int64_t row_begin = at_least_zero(r * p.row_step - p.row_border);
      const std::int64_t row_end = at_most(r * p.row_step - p.row_border + p.rows, p.in_rows);
      for (std::int64_t c = 0; c < p.out_columns; ++c) {
        const std::int64_t begin = at_least_zero(c * p.column_step - p.column_border);
        const std::int64_t end = at_most(c * p.column_step - p.column_border + p.columns, p.in_columns);
        std::int64_t place = row_begin * p.in_columns + begin;
        float most = from[place];
        for (std::int64_t y = row_begin; y < row_end; ++y) {
          for (std::int64_t x = begin; x < end; ++x) {
            const float value = from[y * p.in_columns + x];
            const bool more = value > most || value != value;
            most = more ? value : most;
            place = more ? y * p.in_columns + x : place;
          }
        }
        *out++ = most;
        *places++ = place;
      }
    }
  }
}

std::uint32_t mixed(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t y = (a & 0x80000000U) | (b & 0x7fffffffU);
  return (y >> 1) ^ ((0U - (b & 1U)) & 0x9908b0dfU);
}

// Matsumoto and Nishimura 1998: word i of the next state is word i + 397 of this state (wrapping around into the next)
// combined with parts of words i and i + 1.
void twist(std::uint32_t* state) {
  std::uint32_t next[state_words];
  for (std::int64_t i = 0; i < state_words - far; ++i) {
    next[i] = state[i + far] ^ mixed(state[i], state[i + 1]);
  }
  for (std::int64_t i = state_words - far; i < 2 * (state_words - far); ++i) {
    next[i] = next[i + far - state_words] ^ mixed(state[i], state[i + 1]);
  }
  for (std::int64_t i = 2 * (state_words - far); i < state_words - 1; ++i) {
    next[i] = next[i + far - state_words] ^ mixed(state[i], state[i + 1]);
  }
  next[state_words - 1] = next[far - 1] ^ mixed(state[state_words - 1], next[0]);
  for (std::int64_t i = 0; i < state_words; ++i) {
    state[i] = next[i];
  }
}

void temper(const std::uint32_t* state, std::uint32_t* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint32_t y = state[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    out[i] = y ^ (y >> 18);
  }
}

void below(const std::uint32_t* words, std::uint64_t limit, float* out, std::int64_t n) {
  constexpr std::uint64_t mask = (std::uint64_t{1} << 53) - 1;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t number = ((std::uint64_t{words[2 * i]} << 32) | words[2 * i + 1]) & mask;
    out[i] = static_cast<std::int64_t>(number) < static_cast<std::int64_t>(limit) ? 1.0F : 0.0F;
  }
}

constexpr Kernels make_kernels(bool (*has_math)(), void (*exp)(const float*, float*, std::int64_t),
                               void (*log)(const float*, float*, std::int64_t), std::int64_t width) {
  return {.relu = relu,
          .threshold_backward = threshold_backward,
          .add = add,
          .mul = mul,
          .mul_number = mul_number,
          .div_number = div_number,
          .add_rows = add_rows,
          .max_pool = max_pool,
          .twist = twist,
          .temper = temper,
          .below = below,
          .has_math = has_math,
          .exp = exp,
          .log = log,
          .width = width};
}

}  // namespace
}  // namespace danling::inline v0::tape
