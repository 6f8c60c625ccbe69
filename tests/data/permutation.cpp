#include <danling/data/permutation.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <danling/core/error.hpp>

#include <support/error.hpp>

namespace {

namespace permutation_test {

using danling::data::order_key;
using danling::data::Permutation;

bool is_bijection(std::int64_t size, std::uint64_t key) {
  const Permutation order(size, key);
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t at = order(i);
    if (at < 0 || at >= size || seen[static_cast<std::size_t>(at)]) {
      return false;
    }
    seen[static_cast<std::size_t>(at)] = true;
  }
  return true;
}

/// Whether `statistic` is a plausible draw from a chi-square distribution: within five standard deviations of its
/// mean (`freedom`, variance twice that).
void check_chi_square(double statistic, double freedom) {
  CHECK(statistic < freedom + 5.0 * std::sqrt(2.0 * freedom));
  CHECK(statistic > freedom - 5.0 * std::sqrt(2.0 * freedom));
}

template <class Counts>
double chi_square(const Counts& counts, double expected) {
  double sum = 0.0;
  for (const auto& count : counts) {
    sum += (count - expected) * (count - expected) / expected;
  }
  return sum;
}

TEST_CASE("Permutation: a bijection for every small size and many keys", "[data]") {
  for (std::int64_t size = 0; size <= 300; ++size) {
    for (std::uint64_t key = 0; key < 20; ++key) {
      REQUIRE(is_bijection(size, key));
    }
  }
}

TEST_CASE("Permutation: a bijection around squares and powers of two", "[data]") {
  for (const std::int64_t size : {1437, 4095, 4096, 4097, 9999, 10000, 10001, 65535, 65536, 65537, 1 << 18}) {
    for (const std::uint64_t key : {std::uint64_t{0}, ~std::uint64_t{0}, order_key(1, 2, "train")}) {
      REQUIRE(is_bijection(size, key));
    }
  }
}

TEST_CASE("Permutation: huge sizes stay in range, without collisions or a list", "[data]") {
  for (const std::int64_t size :
       {std::int64_t{1'000'000'000'000}, std::int64_t{1} << 62, (std::int64_t{1} << 53) + 1}) {
    const Permutation order(size, 7);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < 20'000; ++i) {
      const std::int64_t at = order(size - 1 - i);
      REQUIRE((at >= 0 && at < size));
      seen.insert(at);
    }
    CHECK(seen.size() == 20'000);
  }
  CHECK(danling_test::error_of<danling::DataError>([] { Permutation(-1, 0); }) ==
        "[data.permutation] expected a size between 0 and 2^62, got -1");
}

TEST_CASE("Permutation: many at a time go where each goes alone", "[data]") {
  for (const std::int64_t size : {1, 2, 3, 7, 8, 9, 100, 1023, 1024, 1025, 4096, 60'000}) {
    const Permutation order(size, order_key(5, 0, ""));
    for (const std::int64_t count : {0, 1, 7, 8, 9, 16, 64, 100}) {
      for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{1}, size / 3, size - count}) {
        if (begin < 0 || begin + count > size) {
          continue;
        }
        std::vector<std::int64_t> together(static_cast<std::size_t>(count));
        std::vector<std::int64_t> alone = together;
        order.fill(begin, together);
        std::iota(alone.begin(), alone.end(), begin);
        std::transform(alone.begin(), alone.end(), alone.begin(), order);
        REQUIRE(together == alone);
      }
    }
  }
  const std::int64_t size = (std::int64_t{1} << 40) + 1;
  const Permutation order(size, 7);
  std::vector<std::int64_t> last(64);
  order.fill(size - 64, last);
  CHECK(last.front() == order(size - 64));
  CHECK(last.back() == order(size - 1));
  Permutation(0, 7).fill(0, {});
}

TEST_CASE("Permutation: over keys, all orders of few records are equally frequent", "[data]") {
  std::size_t num_orders = 1;
  for (std::int64_t size = 2; size <= 6; ++size) {
    num_orders *= static_cast<std::size_t>(size);
    const std::size_t num_keys = std::max<std::size_t>(20'000, 100 * num_orders);
    std::map<std::vector<std::int64_t>, double> counts;
    for (std::size_t key = 0; key < num_keys; ++key) {
      const Permutation order(size, order_key(key, 0, "train"));
      std::vector<std::int64_t> to;
      for (std::int64_t i = 0; i < size; ++i) {
        to.push_back(order(i));
      }
      counts[to] += 1.0;
    }
    REQUIRE(counts.size() == num_orders);
    std::vector<double> frequencies;
    for (const auto& entry : counts) {
      frequencies.push_back(entry.second);
    }
    const double expected = static_cast<double>(num_keys) / static_cast<double>(num_orders);
    check_chi_square(chi_square(frequencies, expected), static_cast<double>(num_orders - 1));
  }
}

TEST_CASE("Permutation: over epochs, every record lands everywhere, and neighbours land independently", "[data]") {
  constexpr std::size_t size = 29;
  const int num_keys = 40'000;
  std::vector<double> of_first(size), of_last(size), of_pair(size * size);
  for (int epoch = 0; epoch < num_keys; ++epoch) {
    const Permutation order(size, order_key(3, epoch, "train"));
    const auto first = static_cast<std::size_t>(order(0));
    const auto second = static_cast<std::size_t>(order(1));
    of_first[first] += 1.0;
    of_last[static_cast<std::size_t>(order(size - 1))] += 1.0;
    of_pair[first * size + second] += 1.0;
  }
  check_chi_square(chi_square(of_first, double(num_keys) / size), size - 1);
  check_chi_square(chi_square(of_last, double(num_keys) / size), size - 1);
  std::vector<double> pairs;  // two records never land in one place
  for (std::size_t i = 0; i < of_pair.size(); ++i) {
    if (i / size != i % size) {
      pairs.push_back(of_pair[i]);
    } else {
      CHECK(of_pair[i] == 0.0);
    }
  }
  check_chi_square(chi_square(pairs, double(num_keys) / double(pairs.size())), double(pairs.size() - 1));
}

TEST_CASE("Permutation: one order of many records looks random", "[data]") {
  // A random permutation of n has one fixed point on average, an n-th of its neighbours stay neighbours in order, and
  // its rank correlation with the identity is normal with variance 1 / (n - 1).
  const std::int64_t size = 60'000;
  double correlation = 0.0;
  std::int64_t fixed = 0;
  std::int64_t followers = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Permutation order(size, order_key(seed, 0, "train"));
    const double middle = (static_cast<double>(size) - 1.0) / 2.0;
    const double variance = (static_cast<double>(size) * static_cast<double>(size) - 1.0) / 12.0;
    double sum = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      sum += (static_cast<double>(i) - middle) * (static_cast<double>(order(i)) - middle);
      fixed += order(i) == i ? 1 : 0;
      followers += i > 0 && order(i) == order(i - 1) + 1 ? 1 : 0;
    }
    correlation = std::max(correlation, std::abs(sum / (static_cast<double>(size) * variance)));
  }
  CHECK(correlation < 5.0 / std::sqrt(static_cast<double>(size) - 1.0));
  CHECK(fixed < 20);      // Poisson with mean 4
  CHECK(followers < 20);  // Poisson with mean 4
}

TEST_CASE("order_key: seed, epoch and split all count, none for another", "[data]") {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      for (const char* split : {"", "train", "val", "test"}) {
        keys.insert(order_key(seed, epoch, split));
      }
    }
  }
  CHECK(keys.size() == 1600);
}

}  // namespace permutation_test

}  // namespace
