#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <danling/data/batch_sampler.hpp>
#include <danling/data/distributed_sampler.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/sampler.hpp>
#include <danling/data/subset_sampler.hpp>
#include <danling/data/tensor_dataset.hpp>
#include <danling/data/weighted_sampler.hpp>

#include <support/error.hpp>

namespace {

namespace samplers_test {

namespace data = danling::data;
using danling_test::error_of;
using Indices = std::vector<std::int64_t>;

static_assert(danling::Checkpointable<data::Sampler> && danling::Checkpointable<data::BatchSampler>);

/// The whole order of an epoch, asked for in pieces of `piece`.
Indices order_of(data::Sampler& sampler, std::int64_t epoch, std::int64_t piece = 1 << 20) {
  sampler.set_epoch(epoch);
  Indices out(static_cast<std::size_t>(sampler.size()));
  for (std::int64_t at = 0; at < sampler.size(); at += piece) {
    const std::int64_t count = std::min(piece, sampler.size() - at);
    sampler.fill(at, std::span(out).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
  }
  return out;
}

Indices iota(std::int64_t count) {
  Indices out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Indices sorted(Indices values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST_CASE("RandomSampler: more samples than records are whole passes, each in another order", "[data]") {
  data::RandomSampler sampler(10, {.num_samples = 25, .seed = 3});
  CHECK(sampler.size() == 25);
  CHECK(sampler.repeats());
  const Indices order = order_of(sampler, 4);
  const Indices first(order.begin(), order.begin() + 10);
  const Indices second(order.begin() + 10, order.begin() + 20);
  CHECK(sorted(first) == iota(10));
  CHECK(sorted(second) == iota(10));
  CHECK(first != second);
  CHECK(std::set<std::int64_t>(order.begin() + 20, order.end()).size() == 5);
  for (const std::int64_t piece : {1, 3, 7, 24}) {
    CHECK(order_of(sampler, 4, piece) == order);
  }
  data::RandomSampler once(10, 3);
  CHECK_FALSE(once.repeats());
  CHECK(order_of(once, 4) == first);
}

TEST_CASE("RandomSampler: fewer samples than records are others in every epoch", "[data]") {
  data::RandomSampler sampler(1000, {.num_samples = 20, .seed = 3});
  CHECK_FALSE(sampler.repeats());
  const Indices first = order_of(sampler, 0);
  CHECK(first.size() == 20);
  CHECK(std::set<std::int64_t>(first.begin(), first.end()).size() == 20);
  CHECK(sorted(order_of(sampler, 1)) != sorted(first));
  CHECK(order_of(sampler, 0) == first);
}

TEST_CASE("RandomSampler: with replacement every record is as frequent, in any order of asking", "[data]") {
  data::RandomSampler sampler(10, {.num_samples = 100'000, .replacement = true, .seed = 3, .split = "train"});
  CHECK(sampler.repeats());
  const Indices order = order_of(sampler, 2);
  std::vector<double> counts(10);
  double followers = 0.0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    counts[static_cast<std::size_t>(order[i])] += 1.0;
    followers += i > 0 && order[i] == order[i - 1] ? 1.0 : 0.0;
  }
  for (const double count : counts) {
    CHECK(std::abs(count - 10'000.0) < 5.0 * std::sqrt(9000.0));  // binomial: n p (1 - p)
  }
  CHECK(std::abs(followers - 10'000.0) < 5.0 * std::sqrt(9000.0));
  CHECK(order_of(sampler, 2, 777) == order);
  CHECK(order_of(sampler, 3) != order);
}

TEST_CASE("RandomSampler: a state of another kind of drawing does not fit", "[data]") {
  const data::RandomSampler plain(10, {.num_samples = 20, .seed = 3});
  data::RandomSampler other_records(11, {.num_samples = 20});
  CHECK(error_of<danling::StateError>([&] { other_records.load_state_dict(plain.state_dict()); }) ==
        "[data.sampler] expected the state of a sampler with the same number of records, got one with others");
  data::RandomSampler replacing(10, {.num_samples = 20, .replacement = true});
  CHECK(error_of<danling::StateError>([&] { replacing.load_state_dict(plain.state_dict()); }) ==
        "[data.sampler] expected the state of a sampler with replacement, got one without");
  data::RandomSampler other_seed(10, {.num_samples = 20, .seed = 4});
  data::RandomSampler same(10, {.num_samples = 20, .seed = 3});
  other_seed.load_state_dict(plain.state_dict());
  CHECK(order_of(other_seed, 5) == order_of(same, 5));
  CHECK(error_of<danling::DataError>([] { data::RandomSampler(0, {.num_samples = 4}); }) ==
        "[data.random_sampler] expected records to draw 4 samples from, got none");
  CHECK(error_of<danling::DataError>([] { data::RandomSampler(3, {.num_samples = -1}); }) ==
        "[data.random_sampler] expected num_samples of at least 0, got -1");
}

/// Whether counts of draws fit probabilities: each within five standard deviations of its mean.
void check_counts(const std::vector<double>& counts, const std::vector<double>& probabilities, double draws) {
  REQUIRE(counts.size() == probabilities.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    INFO("record " << i);
    const double p = probabilities[i];
    CHECK(std::abs(counts[i] - draws * p) <= 5.0 * std::sqrt(draws * p * (1.0 - p)));
  }
}

TEST_CASE("WeightedSampler: with replacement records come in proportion to their weights, those of 0 never", "[data]") {
  const std::vector<double> weights = {1.0, 0.0, 3.0, 0.5, 0.0, 5.5, 1e-300, 0.0};
  data::WeightedSampler sampler(weights, {.num_samples = 200'000, .seed = 1});
  CHECK(sampler.size() == 200'000);
  CHECK(sampler.repeats());
  const Indices order = order_of(sampler, 3);
  std::vector<double> counts(weights.size());
  std::vector<double> after_three(weights.size());
  double threes = 0.0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    counts[static_cast<std::size_t>(order[i])] += 1.0;
    if (i > 0 && order[i - 1] == 3) {
      after_three[static_cast<std::size_t>(order[i])] += 1.0;
      threes += 1.0;
    }
  }
  std::vector<double> probabilities;
  for (const double weight : weights) {
    probabilities.push_back(weight / 10.0);
  }
  check_counts(counts, probabilities, 200'000.0);
  check_counts(after_three, probabilities, threes);
  for (const std::int64_t piece : {1000, 77'777}) {
    CHECK(order_of(sampler, 3, piece) == order);
  }
  CHECK(order_of(sampler, 4) != order);
  CHECK(order_of(sampler, 3) == order);
}

TEST_CASE("WeightedSampler: the alias table has no weight wrong, whatever their range", "[data]") {
  // One draw for every record of a thousand is rare events: sums over random groups of records test them all.
  std::vector<double> weights;
  double sum = 0.0;
  for (int i = 0; i < 1000; ++i) {
    weights.push_back(
        i % 7 == 0 ? 0.0
                   : std::ldexp(1.0 + data::Random(data::RandomKey::of(std::uint64_t(i))).uniform(), i % 11 - 1000));
    sum += weights.back();
  }
  data::WeightedSampler sampler(weights, {.num_samples = 300'000, .seed = 2});
  const Indices order = order_of(sampler, 0);
  for (std::size_t groups : {std::size_t{7}, std::size_t{11}, std::size_t{37}}) {
    std::vector<double> counts(groups);
    std::vector<double> probabilities(groups);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      probabilities[i % groups] += weights[i] / sum;
    }
    for (const std::int64_t index : order) {
      counts[static_cast<std::size_t>(index) % groups] += 1.0;
    }
    check_counts(counts, probabilities, 300'000.0);
  }
  const double largest = std::numeric_limits<double>::max();
  data::WeightedSampler huge({largest, 0.0, largest}, {.num_samples = 10'000});
  const Indices of_huge = order_of(huge, 0);
  CHECK(std::count(of_huge.begin(), of_huge.end(), 1) == 0);
  CHECK(std::abs(double(std::count(of_huge.begin(), of_huge.end(), 0)) - 5000.0) < 5.0 * 50.0);
  data::WeightedSampler single({3.0});
  CHECK(order_of(single, 0) == Indices{0});
}

TEST_CASE("WeightedSampler: without replacement each draw is in proportion to the weights that are left", "[data]") {
  // The probability of an order is the product of w / (sum of what is left).
  const std::vector<double> weights = {1.0, 2.0, 0.0, 4.0};
  data::WeightedSampler sampler(weights, {.replacement = false, .seed = 5});
  CHECK(sampler.size() == 3);
  CHECK_FALSE(sampler.repeats());
  const double epochs = 40'000.0;
  std::map<Indices, double> counts;
  for (std::int64_t epoch = 0; epoch < std::int64_t(epochs); ++epoch) {
    counts[order_of(sampler, epoch)] += 1.0;
  }
  REQUIRE(counts.size() == 6);
  for (const auto& [order, count] : counts) {
    double probability = 1.0;
    double left = 7.0;
    for (const std::int64_t record : order) {
      const double weight = weights[static_cast<std::size_t>(record)];
      probability *= weight / left;
      left -= weight;
    }
    check_counts({count}, {probability}, epochs);
  }
  // Fewer samples are the first ones of the whole order; weights whose inverse is infinite have their place.
  data::WeightedSampler few(weights, {.num_samples = 2, .replacement = false, .seed = 5});
  const Indices whole = order_of(sampler, 9);
  CHECK(order_of(few, 9) == Indices(whole.begin(), whole.begin() + 2));
  data::WeightedSampler tiny({1e-320, 1.0, 2e-320, 0.0}, {.replacement = false});
  CHECK(order_of(tiny, 0).front() == 1);
  CHECK(sorted(order_of(tiny, 1)) == Indices{0, 1, 2});
}

TEST_CASE("WeightedSampler: weights and numbers that cannot be drawn are refused by name", "[data]") {
  const auto error = [](std::vector<double> weights, data::WeightedSamplerOptions options = {}) {
    return error_of<danling::DataError>([&] { data::WeightedSampler(std::move(weights), options); });
  };
  CHECK(error({1.0, -0.5}) == "[data.weighted_sampler] expected weights of at least 0, got -0.5 for record 1");
  CHECK(error({std::nan(""), 1.0}) == "[data.weighted_sampler] expected weights of at least 0, got nan for record 0");
  CHECK(error({1.0, INFINITY}) == "[data.weighted_sampler] expected weights of at least 0, got inf for record 1");
  CHECK(error({0.0, 0.0}) == "[data.weighted_sampler] expected a weight above 0, got none in 2");
  CHECK(error({}) == "[data.weighted_sampler] expected a weight above 0, got none in 0");
  CHECK(error({1.0}, {.num_samples = -1}) == "[data.weighted_sampler] expected num_samples of at least 0, got -1");
  CHECK(error({1.0, 0.0, 2.0}, {.num_samples = 3, .replacement = false}) ==
        "[data.weighted_sampler] expected num_samples of at most 2, the weights above 0, got 3; draw more with "
        "replacement");
}

TEST_CASE("WeightedSampler: a state brings its seed, and other weights do not fit", "[data]") {
  for (const bool replacement : {true, false}) {
    const std::vector<double> weights = {1.0, 2.0, 3.0, 4.0, 5.0};
    data::WeightedSampler saved(weights, {.replacement = replacement, .seed = 1, .split = "train"});
    data::WeightedSampler loaded(weights, {.replacement = replacement, .seed = 2});
    loaded.set_epoch(6);
    loaded.load_state_dict(saved.state_dict());
    CHECK(order_of(loaded, 6) == order_of(saved, 6));
    data::WeightedSampler other({1.0, 2.0, 3.0, 5.0, 4.0}, {.replacement = replacement});
    CHECK(error_of<danling::StateError>([&] { other.load_state_dict(saved.state_dict()); }) ==
          "[data.sampler] expected the state of a sampler with the same weights, got one with others");
  }
  data::SequentialSampler sequential(5);
  data::WeightedSampler weighted({1.0, 1.0, 1.0, 1.0, 1.0});
  CHECK(error_of<danling::StateError>([&] {
          weighted.load_state_dict(sequential.state_dict());
        }).starts_with("[data.sampler] expected the state of a weighted sampler, got that of a sequential sampler"));
}

TEST_CASE("balanced_weights: every class weighs the same", "[data]") {
  const Indices labels = {4, 4, -1, 4, 9, 9, 4};
  const std::vector<double> expected = {0.25, 0.25, 1.0, 0.25, 0.5, 0.5, 0.25};
  CHECK(data::balanced_weights(labels) == expected);
  CHECK(data::balanced_weights(at::tensor({4, 4, -1, 4, 9, 9, 4}, at::kInt)) == expected);
  CHECK(error_of<danling::DataError>([] { data::balanced_weights(at::tensor({0.5, 1.0})); }) ==
        "[data.balanced_weights] expected integral labels of shape [N], got Double [2]");
  CHECK(error_of<danling::DataError>([] { data::balanced_weights(at::Tensor()); }) ==
        "[data.balanced_weights] expected integral labels of shape [N], got none");
}

TEST_CASE("SubsetSampler: the list in its order, or all of it shuffled by the key", "[data]") {
  const Indices list = {7, 3, 9, 1, 4, 12};
  data::SubsetSampler given(list);
  CHECK_FALSE(given.repeats());
  CHECK(order_of(given, 0) == list);
  CHECK(order_of(given, 3, 4) == list);
  data::SubsetSampler shuffled(list, {.shuffle = true, .seed = 2});
  const Indices first = order_of(shuffled, 0);
  CHECK(sorted(first) == sorted(list));
  CHECK(order_of(shuffled, 1) != first);
  CHECK(order_of(shuffled, 0, 1) == first);
  CHECK(data::SubsetSampler({1, 2, 1}).repeats());
  data::SubsetSampler loaded(list, {.shuffle = true, .seed = 5});
  loaded.load_state_dict(shuffled.state_dict());
  CHECK(order_of(loaded, 7) == order_of(shuffled, 7));
  CHECK(error_of<danling::StateError>([&] { given.load_state_dict(shuffled.state_dict()); }) ==
        "[data.sampler] expected the state of a sampler with shuffle: false, got one with shuffle: true");
  data::SubsetSampler other({7, 3, 9, 1, 4, 11});
  CHECK(error_of<danling::StateError>([&] { other.load_state_dict(given.state_dict()); }) ==
        "[data.sampler] expected the state of a sampler with the same indices, got one with others");
  CHECK(error_of<danling::DataError>([] { data::SubsetSampler({1, -2}); }) ==
        "[data.subset_sampler] expected indices of at least 0, got -2 at position 1");
}

TEST_CASE("DistributedSampler: the indices of torch's, in given order", "[data]") {
  std::ifstream file(DANLING_SOURCE_DIR "/tests/golden/data/distributed_sampler.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream in(line);
    std::int64_t size = 0, world_size = 0, rank = 0;
    bool drop_last = false;
    in >> size >> world_size >> drop_last >> rank;
    Indices expected;
    for (std::int64_t index = 0; in >> index;) {
      expected.push_back(index);
    }
    INFO(line);
    data::DistributedSampler sampler(std::make_shared<data::SequentialSampler>(size),
                                     {.rank = rank, .world_size = world_size, .drop_last = drop_last});
    CHECK(order_of(sampler, 0) == expected);
    CHECK(sampler.sharded() == (world_size > 1));
  }
  CHECK(cases == 560);
}

TEST_CASE("DistributedSampler: ranks share a shuffled order; its state is that of one rank", "[data]") {
  const auto of_rank = [](std::int64_t rank, std::int64_t world_size, std::uint64_t seed = 4) {
    return data::DistributedSampler(std::make_shared<data::RandomSampler>(11, seed),
                                    {.rank = rank, .world_size = world_size});
  };
  data::RandomSampler whole(11, 4);
  Indices expected = order_of(whole, 2);
  expected.push_back(expected.front());
  Indices together(12);
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    auto sampler = of_rank(rank, 3);
    CHECK(sampler.repeats());
    const Indices own = order_of(sampler, 2);
    for (std::size_t i = 0; i < own.size(); ++i) {
      together[static_cast<std::size_t>(rank) + 3 * i] = own[i];
    }
  }
  CHECK(together == expected);
  auto other_seed = of_rank(1, 3, 9);
  auto saved = of_rank(1, 3);
  other_seed.load_state_dict(saved.state_dict());
  CHECK(order_of(other_seed, 2) == order_of(saved, 2));
  auto other_rank = of_rank(2, 3);
  CHECK(error_of<danling::StateError>([&] { other_rank.load_state_dict(saved.state_dict()); }) ==
        "[data.sampler] expected the state of a sampler with the same rank, got one with others");
  CHECK(error_of<danling::ConfigError>([&] { of_rank(3, 3); }) ==
        "[data.distributed_sampler] expected a rank in [0, world_size), got rank 3 of 3");
  CHECK(error_of<danling::ConfigError>([&] {
          data::DistributedSampler(std::make_shared<data::DistributedSampler>(saved), {.world_size = 2});
        }) == "[data.distributed_sampler] expected a sampler of all processes, got the part of one");
  // A loader without a shard takes one, as torch's does; with one the data would be divided twice.
  const auto dataset = std::make_shared<data::TensorDataset>(at::arange(11));
  const auto part = std::make_shared<data::DistributedSampler>(saved);
  data::Loader<danling::Batch> own(dataset, {.batch_size = 4, .sampler = part});
  CHECK(own.num_samples() == 4);
  CHECK(error_of<danling::ConfigError>([&] {
          data::Loader<danling::Batch>(dataset, {.batch_size = 4, .sampler = part, .shard = {.world_size = 3}});
        }) == "[data.loader] expected a sampler of all processes together with a shard, got the part of one");
}

}  // namespace samplers_test

}  // namespace
