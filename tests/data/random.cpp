// The distributions of random numbers against closed forms. Keys are fixed, so that each bound is met or not for good:
// they are five standard deviations wide.
#include <danling/data/random.hpp>

#include <cmath>
#include <numeric>

#include <ATen/ops/full.h>

#include <danling/data/batch_info.hpp>
#include <danling/data/dataset_adapter.hpp>
#include <danling/data/subset.hpp>

#include <support/error.hpp>

namespace {

namespace random_test {

namespace data = danling::data;
using danling_test::error_of;
using data::Random;
using data::RandomKey;

constexpr int draws = 200'000;

/// Whether counts agree with equal chances: the statistic of chi-square is that of its mean and variance.
void check_uniform(const std::vector<std::int64_t>& counts) {
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const std::int64_t count : counts) {
    const double difference = static_cast<double>(count) - expected;
    chi_square += difference * difference / expected;
  }
  const double freedom = static_cast<double>(counts.size() - 1);
  CHECK(std::abs(chi_square - freedom) < 5.0 * std::sqrt(2.0 * freedom));
}

struct Moments {
  double mean = 0, variance = 0;
};

/// The first two moments against theory; `kurtosis` gives how much the variance itself varies.
template <class Draw>
void check_moments(const Draw& draw, Moments theory, double kurtosis) {
  std::vector<double> values(draws);
  for (double& value : values) {
    value = draw();
  }
  const double n = draws;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  CHECK(std::abs(mean - theory.mean) < 5.0 * std::sqrt(theory.variance / n));
  CHECK(std::abs(squares / n - theory.variance) < 5.0 * theory.variance * std::sqrt((kurtosis - 1.0) / n));
}

TEST_CASE("Random: uniform fills its cells evenly, and pairs of numbers theirs", "[data]") {
  Random random(RandomKey::of(1));
  std::vector<std::int64_t> cells(64);
  std::vector<std::int64_t> pairs(16 * 16);
  for (int i = 0; i < draws; ++i) {
    const double x = random.uniform();
    const double y = random.uniform();
    REQUIRE((x >= 0.0 && x < 1.0));
    ++cells[static_cast<std::size_t>(x * 64)];
    ++pairs[static_cast<std::size_t>(x * 16) * 16 + static_cast<std::size_t>(y * 16)];
  }
  check_uniform(cells);
  check_uniform(pairs);
  check_moments([&] { return random.uniform(-2.0, 4.0); }, {1.0, 3.0}, 1.8);
}

TEST_CASE("Random: every bit of a draw is as often 1 as 0", "[data]") {
  Random random(RandomKey::of(2));
  std::array<std::int64_t, 64> ones = {};
  for (int i = 0; i < draws; ++i) {
    std::uint64_t bits = random();
    for (auto& count : ones) {
      count += static_cast<std::int64_t>(bits & 1);
      bits >>= 1;
    }
  }
  for (const std::int64_t count : ones) {
    CHECK(std::abs(static_cast<double>(count) - draws / 2.0) < 5.0 * std::sqrt(draws / 4.0));
  }
}

TEST_CASE("Random: keys of neighbouring records, epochs and seeds draw unrelated numbers", "[data]") {
  // The first numbers of neighbouring keys, as pairs: a relation between them would fill cells unevenly.
  std::vector<std::int64_t> records(16 * 16);
  std::vector<std::int64_t> seeds(16 * 16);
  const auto cell = [](const RandomKey& a, const RandomKey& b) {
    return static_cast<std::size_t>(Random(a).randint(16) * 16 + Random(b).randint(16));
  };
  for (std::uint64_t i = 0; i < draws; ++i) {
    const RandomKey epoch = RandomKey::of(3);
    ++records[cell(epoch.fold_in(i), epoch.fold_in(i + 1))];
    ++seeds[cell(RandomKey::of(i), RandomKey::of(i + 1))];
  }
  check_uniform(records);
  check_uniform(seeds);
}

TEST_CASE("Random: below draws each number as often, also where the bound divides nothing", "[data]") {
  Random random(RandomKey::of(4));
  for (const std::int64_t bound : {2, 3, 10, 97}) {
    CAPTURE(bound);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(bound));
    for (int i = 0; i < draws; ++i) {
      ++counts.at(static_cast<std::size_t>(random.randint(bound)));
    }
    check_uniform(counts);
  }
  // Of 3 * 2^61 numbers, scaling 64 bits without a second draw would hit every three of them 3, 3 and 2 times.
  std::vector<std::int64_t> thirds(3);
  const std::int64_t large = std::int64_t{3} << 61;
  for (int i = 0; i < draws; ++i) {
    const std::int64_t value = random.randint(large);
    REQUIRE((value >= 0 && value < large));
    ++thirds[static_cast<std::size_t>(value % 3)];
  }
  check_uniform(thirds);
  CHECK(random.randint(1) == 0);
  CHECK(error_of<danling::DataError>([&] { random.randint(0); }) == "[data.random] expected a bound above 0, got 0");
}

TEST_CASE("Random: normal, gamma and beta have the moments of theory", "[data]") {
  Random random(RandomKey::of(5));
  check_moments([&] { return random.normal(); }, {0.0, 1.0}, 3.0);
  // 68.27 % of a normal lies within one standard deviation, 4.55 % outside of two.
  int inside = 0;
  int outside = 0;
  for (int i = 0; i < draws; ++i) {
    const double x = std::abs(random.normal());
    inside += x < 1.0 ? 1 : 0;
    outside += x > 2.0 ? 1 : 0;
  }
  CHECK(std::abs(inside - draws * 0.682689) < 5.0 * std::sqrt(draws * 0.682689 * 0.317311));
  CHECK(std::abs(outside - draws * 0.0455003) < 5.0 * std::sqrt(draws * 0.0455003 * 0.9544997));
  for (const double shape : {0.1, 0.5, 1.0, 2.5, 30.0}) {
    CAPTURE(shape);
    check_moments([&] { return random.gamma(shape); }, {shape, shape}, 3.0 + 6.0 / shape);
  }
  for (const auto& [a, b] : std::vector<std::pair<double, double>>{{0.2, 0.2}, {1.0, 1.0}, {0.4, 2.0}, {5.0, 3.0}}) {
    CAPTURE(a, b);
    const double sum = a + b;
    const double excess = 6.0 * ((a - b) * (a - b) * (sum + 1) - a * b * (sum + 2)) / (a * b * (sum + 2) * (sum + 3));
    check_moments([&, x = a, y = b] { return random.beta(x, y); }, {a / sum, a * b / (sum * sum * (sum + 1))},
                  3.0 + excess);
  }
  CHECK(error_of<danling::DataError>([&] { random.gamma(0.0); }) == "[data.random] expected a shape above 0, got 0.0");
}

/// A record is its first random number, so that what a sample draws from can be seen.
struct Drawing {
  std::int64_t size() const { return 40; }
  std::pair<std::int64_t, double> get(std::int64_t index, const data::SampleInfo& info) const {
    Random random = info.random();
    return {index, random.uniform()};
  }
};

TEST_CASE("DatasetAdapter: a sample draws the same numbers in every batch, place and subset", "[data]") {
  const auto dataset = data::make_dataset(Drawing());
  data::BatchInfo info;
  info.epoch_key = RandomKey::of(9);
  const auto read = [&](auto& from, std::vector<std::int64_t> indices, std::vector<std::int64_t> records) {
    info.indices = std::move(records);
    return from.read(indices, info).second;
  };
  std::vector<std::int64_t> all(40);
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor whole = read(*dataset, all, all);
  CHECK(whole[7].item<double>() == Random(RandomKey::of(9).fold_in(7)).uniform());
  const at::Tensor few = read(*dataset, {7, 30, 2}, {7, 30, 2});
  CHECK(few[0].equal(whole[7]));
  CHECK(few[1].equal(whole[30]));
  CHECK(few[2].equal(whole[2]));
  // A subset reads other records under the loader's numbers: draws belong to the loader's.
  const auto some = data::subset(dataset, {5, 6, 7, 8});
  info.indices = {2, 0};
  const std::vector<std::int64_t> indices = info.indices;
  const auto part = some.get_batch(indices, info);
  CHECK(part.first[0].item<std::int64_t>() == 7);
  CHECK(part.second[0].equal(whole[2]));
  CHECK(part.second[1].equal(whole[0]));
  // Keys of single samples, where a sampler repeats records, win over the record's.
  info.sample_keys = {RandomKey::of(1), RandomKey::of(2)};
  CHECK(some.get_batch(indices, info).second[1].item<double>() == Random(RandomKey::of(2)).uniform());
  const std::vector<std::size_t> second = {1};
  CHECK(info.select(second).random(0)() == Random(RandomKey::of(2))());
}

}  // namespace random_test

}  // namespace
