#include <danling/data/sampler.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <danling/data/batch_sampler.hpp>
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

}  // namespace samplers_test

}  // namespace
