// Random numbers computed from a key: equal in any thread, at any time, on any machine.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace danling::inline v0::data {

/// A key of random numbers. Derive new keys by `split` and `fold_in`; use each key once. Produces the numbers of JAX's
/// default keys (Threefry-2x32, partitionable): `RandomKey::of(s)` is `jax.random.key(s)`. (Salmon et al., "Parallel
/// random numbers: as easy as 1, 2, 3", 2011.)
struct RandomKey {
  std::uint32_t high = 0;
  std::uint32_t low = 0;

  static RandomKey of(std::uint64_t seed) {
    return {static_cast<std::uint32_t>(seed >> 32), static_cast<std::uint32_t>(seed)};
  }

  /// Returns an unrelated key for every `data`.
  RandomKey fold_in(std::uint64_t data) const;
  /// Returns `num` unrelated keys.
  std::vector<RandomKey> split(std::int64_t num = 2) const;

  bool operator==(const RandomKey&) const = default;
};

/// Draws numbers from a key. Satisfies std::uniform_random_bit_generator. Unlike std distributions, the functions below
/// return the same numbers with every standard library.
class Random {
 public:
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  explicit Random(RandomKey key) : key_(key) {}

  result_type operator()();
  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform();
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform integer in [0, bound). @throws DataError when `bound` is not above 0.
  std::int64_t randint(std::int64_t bound);
  [[deprecated("use randint")]] std::int64_t below(std::int64_t bound) { return randint(bound); }
  /// Returns true with this probability.
  bool bernoulli(double probability) { return uniform() < probability; }
  /// Standard normal (Box-Muller).
  double normal();
  /// Gamma distribution with this shape, above 0, and scale 1 (Marsaglia and Tsang, "A simple method for generating
  /// gamma variables", 2000).
  /// @throws DataError for another shape.
  double gamma(double shape);
  /// Beta distribution in [0, 1]; shapes above 0. @throws DataError for other shapes.
  double beta(double a, double b);

 private:
  RandomKey key_;
  std::uint64_t drawn_ = 0;
};

}  // namespace danling::inline v0::data
