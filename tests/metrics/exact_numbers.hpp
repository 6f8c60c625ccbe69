// Numbers whose sums a test can compute exactly, as integers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace exact_numbers {

// Float64 numbers as multiples of 2^-60: exact below 2^66.
__extension__ using Wide = __int128;
constexpr int kScale = 60;

inline Wide wide(double x) { return static_cast<Wide>(std::ldexp(x, kScale)); }
/// The float64 nearest to it.
inline double rounded(Wide sum) { return std::ldexp(static_cast<double>(sum), -kScale); }

/// Random numbers of either sign, of magnitudes from 2^-`small` to 2^`large` and of `bits` bits, at most 53.
class Draw {
 public:
  Draw(std::uint32_t seed, int small, int large, int bits) : random_(seed), small_(small), large_(large), bits_(bits) {}
  double operator()() {
    const int exponent = std::uniform_int_distribution<int>(-small_, large_ - 1)(random_);
    const auto most = std::int64_t{1} << (bits_ - 1);
    const auto digits = std::uniform_int_distribution<std::int64_t>(most, 2 * most - 1)(random_);
    return std::ldexp(static_cast<double>(random_() % 2 == 0 ? digits : -digits), exponent - bits_ + 1);
  }
  std::int64_t weight(std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random_); }

 private:
  std::mt19937 random_;
  int small_;
  int large_;
  int bits_;
};

/// Equal to the bit; all nan are equal.
inline bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// The shards of `count` that a rank computes: neighbours.
struct Shards {
  int begin;
  int end;
};
inline Shards shards_of(int rank, int ranks, int count) { return {rank * count / ranks, (rank + 1) * count / ranks}; }

}  // namespace exact_numbers
