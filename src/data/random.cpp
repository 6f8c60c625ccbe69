#include <danling/data/random.hpp>

#include <bit>
#include <cmath>
#include <numbers>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

// Threefry-2x32 with 20 rounds: encrypts `counter` under `key`.
RandomKey threefry(RandomKey key, RandomKey counter) {
  constexpr std::array<std::array<int, 4>, 2> rotations = {{{13, 15, 26, 6}, {17, 29, 16, 24}}};
  const std::array<std::uint32_t, 3> keys = {key.high, key.low, key.high ^ key.low ^ 0x1bd11bda};
  std::uint32_t a = counter.high + keys[0];
  std::uint32_t b = counter.low + keys[1];
  for (std::uint32_t group = 0; group < 5; ++group) {
    for (const int rotation : rotations[group % 2]) {
      a += b;
      b = std::rotl(b, rotation) ^ a;
    }
    a += keys[(group + 1) % 3];
    b += keys[(group + 2) % 3] + group + 1;
  }
  return {a, b};
}

}  // namespace

RandomKey RandomKey::fold_in(std::uint64_t data) const { return threefry(*this, RandomKey::of(data)); }

std::vector<RandomKey> RandomKey::split(std::int64_t num) const {
  check<DataError>(num >= 0, "data.random", "expected a number of keys of at least 0, got ", num);
  std::vector<RandomKey> keys;
  keys.reserve(static_cast<std::size_t>(num));
  for (std::int64_t i = 0; i < num; ++i) {
    keys.push_back(fold_in(static_cast<std::uint64_t>(i)));
  }
  return keys;
}

Random::result_type Random::operator()() {
  const RandomKey bits = key_.fold_in(drawn_++);
  return (static_cast<std::uint64_t>(bits.high) << 32) | bits.low;
}

double Random::uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

std::int64_t Random::randint(std::int64_t bound) {
  check<DataError>(bound > 0, "data.random", "expected a bound above 0, got ", bound);
  // Lemire, "Fast random integer generation in an interval", 2019: a multiplication, and another draw if the remainder
  // would favor small numbers.
  const auto range = static_cast<std::uint64_t>(bound);
  unsigned __int128 product = static_cast<unsigned __int128>((*this)()) * range;
  if (static_cast<std::uint64_t>(product) < range) {
    const std::uint64_t threshold = (0 - range) % range;
    while (static_cast<std::uint64_t>(product) < threshold) {
      product = static_cast<unsigned __int128>((*this)()) * range;
    }
  }
  return static_cast<std::int64_t>(product >> 64);
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

double Random::gamma(double shape) {
  check<DataError>(shape > 0.0 && std::isfinite(shape), "data.random", "expected a shape above 0, got ", shape);
  if (shape < 1.0) {
    const double larger = gamma(shape + 1.0);
    return larger * std::pow(1.0 - uniform(), 1.0 / shape);
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = normal();
    const double root = 1.0 + c * x;
    if (root <= 0.0) {
      continue;
    }
    const double v = root * root * root;
    if (std::log1p(-uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return d * v;
    }
  }
}

double Random::beta(double a, double b) {
  const double x = gamma(a);
  const double y = gamma(b);
  // Both can underflow to 0 for small shapes: the result is then 0 or 1.
  return x + y > 0.0 ? x / (x + y) : (bernoulli(a / (a + b)) ? 1.0 : 0.0);
}

}  // namespace danling::inline v0::data
