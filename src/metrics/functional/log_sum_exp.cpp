#include <metrics/functional/log_sum_exp.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <metrics/functional/vectors.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

// Scores are added in this many columns for every vector size, so that all CPUs compute the same bits.
constexpr std::int64_t sum_columns = 32;
// Number of scores added in float32 before they are added to the float64 sum.
constexpr std::int64_t sum_block = 64 * sum_columns;

// A separate template, since GCC 12 rejects a template parameter as a vector's size.
template <std::size_t bytes>
struct VectorTypes;
template <>
struct VectorTypes<16> {
  using Floats = float __attribute__((vector_size(16)));
  using Ints = std::int32_t __attribute__((vector_size(16)));
  using Shorts = std::uint16_t __attribute__((vector_size(8)));
};
template <>
struct VectorTypes<32> {
  using Floats = float __attribute__((vector_size(32)));
  using Ints = std::int32_t __attribute__((vector_size(32)));
  using Shorts = std::uint16_t __attribute__((vector_size(16)));
};
template <>
struct VectorTypes<64> {
  using Floats = float __attribute__((vector_size(64)));
  using Ints = std::int32_t __attribute__((vector_size(64)));
  using Shorts = std::uint16_t __attribute__((vector_size(32)));
};

template <std::size_t bytes>
struct Vectors {
  static constexpr std::int64_t lanes = bytes / sizeof(float);
  static constexpr std::int64_t count = sum_columns / lanes;
  using Floats = typename VectorTypes<bytes>::Floats;
  using Ints = typename VectorTypes<bytes>::Ints;
  using Shorts = typename VectorTypes<bytes>::Shorts;

  [[gnu::always_inline]] static void load(const float* from, Floats& out) { std::memcpy(&out, from, sizeof(out)); }
  [[gnu::always_inline]] static void load(const c10::BFloat16* from, Floats& out) {
    Shorts halves;
    std::memcpy(&halves, from, sizeof(halves));
    const Ints bits = __builtin_convertvector(halves, Ints) << 16;
    std::memcpy(&out, &bits, sizeof(out));
  }

  // exp of scores that are at most 0; below -87 it stays 1.6e-38, which does not change a sum of at least 1. Cephes'
  // expf: x = n * ln 2 + r, exp(r) by a polynomial, 2^n through the exponent's bits.
  [[gnu::always_inline]] static void exp_of(Floats& x) {
    constexpr float to_integer = 0x1.8p23F;
    x = x < -87.0F ? Floats{} - 87.0F : x;
    const Floats shifted = x * 1.44269504088896341F + to_integer;  // its lowest bits are n
    const Floats n = shifted - to_integer;
    const Floats r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
    Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    Ints exponent;
    std::memcpy(&exponent, &shifted, sizeof(exponent));
    exponent = (exponent - std::bit_cast<std::int32_t>(to_integer) + 127) << 23;
    Floats power;
    std::memcpy(&power, &exponent, sizeof(power));
    x = p * power;
  }

  Floats all[count];

  template <class T>
  [[gnu::always_inline]] void raise_to(const T* from) {
    for (std::int64_t k = 0; k < count; ++k) {
      Floats scores;
      load(from + k * lanes, scores);
      all[k] = scores > all[k] ? scores : all[k];
    }
  }
  template <class T>
  [[gnu::always_inline]] void add_exp(const T* from, float highest) {
    for (std::int64_t k = 0; k < count; ++k) {
      Floats scores;
      load(from + k * lanes, scores);
      scores -= highest;
      exp_of(scores);
      all[k] += scores;
    }
  }
  [[gnu::always_inline]] float at(std::int64_t column) const { return all[column / lanes][column % lanes]; }
};

template <std::size_t bytes, class T>
[[gnu::always_inline]] inline void reduce(const T* row, std::int64_t n, float& highest, double& sum) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const std::int64_t whole = n / sum_columns * sum_columns;
  // Padded with -inf, which changes neither maximum nor sum.
  T rest[sum_columns];
  std::fill_n(rest, sum_columns, static_cast<T>(lowest));
  std::copy(row + whole, row + n, rest);

  Vectors<bytes> best;
  std::fill_n(best.all, best.count, typename Vectors<bytes>::Floats{} + lowest);
  for (std::int64_t i = 0; i < whole; i += sum_columns) {
    best.raise_to(row + i);
  }
  best.raise_to(rest);
  highest = lowest;
  for (std::int64_t column = 0; column < sum_columns; ++column) {
    highest = std::max(highest, best.at(column));
  }

  sum = 0.0;
  Vectors<bytes> sums;
  const auto join = [&]() __attribute__((always_inline)) {
    for (std::int64_t column = 0; column < sum_columns; ++column) {
      sum += static_cast<double>(sums.at(column));
    }
  };
  for (std::int64_t begin = 0; begin < whole; begin += sum_block) {
    sums = {};
    for (std::int64_t i = begin; i < std::min(whole, begin + sum_block); i += sum_columns) {
      sums.add_exp(row + i, highest);
    }
    join();
  }
  sums = {};
  sums.add_exp(rest, highest);
  join();
}

}  // namespace

template <class T>
LogSumExp log_sum_exp(const T* row, std::int64_t n) {
  float highest = 0.0F;
  double sum = 0.0;
  run_vectors_of_bytes([&](auto bytes) __attribute__((always_inline)) { reduce<bytes()>(row, n, highest, sum); });
  return {static_cast<double>(highest), std::log(sum)};
}
template LogSumExp log_sum_exp(const float* row, std::int64_t n);
template LogSumExp log_sum_exp(const c10::BFloat16* row, std::int64_t n);

}  // namespace danling::inline v0::metrics::detail
