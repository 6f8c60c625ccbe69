// Sums of float64 numbers without rounding errors.
#include <metrics/exact_sum.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <support/catch.hpp>

#include "exact_numbers.hpp"

namespace exact_sum_test {

using exact_numbers::Draw;
using exact_numbers::rounded;
using exact_numbers::same;
using exact_numbers::Wide;
using exact_numbers::wide;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("ExactSum: the nearest float64 of sums over all magnitudes, in any order", "[metrics]") {
  Draw draw(3, 50, 50, 53);
  std::mt19937 order(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> numbers;
    Wide sum = 0;
    for (int i = 0; i < 40; ++i) {
      // Multiples of 2^-60, as `wide` needs them.
      const double number = std::ldexp(std::round(std::ldexp(draw(), 60)), -60);
      numbers.push_back(number);
      sum += wide(number);
    }
    std::shuffle(numbers.begin(), numbers.end(), order);
    danling::detail::ExactSum exact;
    for (const double number : numbers) {
      exact.add(number);
    }
    const auto [whole, rest] = exact.with_rest();
    CHECK(same(whole, rounded(sum)));
    CHECK(same(rest, rounded(sum - wide(whole))));
  }
  const auto sum_of = [](const std::vector<double>& numbers) {
    danling::detail::ExactSum exact;
    for (const double number : numbers) {
      exact.add(number);
    }
    return exact.rounded();
  };
  CHECK(same(sum_of({}), 0.0));
  CHECK(sum_of({1e308, 1.0, -1e308}) == 1.0);
  // A tie: 2^53 + 1 rounds to the even 2^53; the smallest excess rounds up.
  CHECK(sum_of({0x1p53, 1.0}) == 0x1p53);
  CHECK(sum_of({0x1p53, 1.0, 0x1p-1000}) == 0x1.0000000000001p53);
  CHECK(sum_of({0x1p53, 1.0, -0x1p-1000}) == 0x1p53);
  CHECK(sum_of({INFINITY, 1.0}) == INFINITY);
  CHECK(std::isnan(sum_of({INFINITY, -INFINITY})));
  CHECK(std::isnan(sum_of({nan, 1.0})));
}

}  // namespace exact_sum_test
