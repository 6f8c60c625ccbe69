#include <danling/data/length_buckets.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/data/collate_padded.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/random.hpp>

#include <support/error.hpp>

namespace {

namespace length_buckets_test {

namespace data = danling::data;
using danling::State;
using danling_test::error_of;
using Indices = std::vector<std::int64_t>;
using Groups = std::vector<Indices>;

static_assert(danling::Checkpointable<data::LengthBuckets>);

/// The next global batch; empty at the end.
Indices next(data::BatchSampler& sampler, const data::BatchShape& shape) {
  Indices group(static_cast<std::size_t>(shape.global_size()));
  group.resize(static_cast<std::size_t>(sampler.next(shape, group)));
  return group;
}

Groups rest_of(data::BatchSampler& sampler, const data::BatchShape& shape) {
  Groups groups;
  for (Indices group = next(sampler, shape); !group.empty(); group = next(sampler, shape)) {
    groups.push_back(group);
  }
  CHECK(next(sampler, shape).empty());
  return groups;
}

Indices flat(const Groups& groups) {
  Indices out;
  for (const Indices& group : groups) {
    out.insert(out.end(), group.begin(), group.end());
  }
  return out;
}

Indices sorted(Indices values) {
  std::sort(values.begin(), values.end());
  return values;
}

Indices iota(std::int64_t count) {
  Indices out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// Log-normal, as the lengths of sentences.
Indices sentence_lengths(std::int64_t count, std::uint64_t seed) {
  data::Random random(data::RandomKey::of(seed));
  Indices lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    lengths.push_back(std::max<std::int64_t>(1, std::int64_t(std::exp(3.0 + 0.7 * random.normal()))));
  }
  return lengths;
}

/// Padded over given tokens, minus one, with ranks that take blocks.
double padding_of(const Groups& groups, const Indices& lengths, std::int64_t world_size) {
  double padded = 0.0;
  double given = 0.0;
  for (const Indices& group : groups) {
    const auto each = (group.size() + std::size_t(world_size) - 1) / std::size_t(world_size);
    for (std::size_t begin = 0; begin < group.size(); begin += each) {
      std::int64_t longest = 0;
      const std::size_t end = std::min(begin + each, group.size());
      for (std::size_t i = begin; i < end; ++i) {
        longest = std::max(longest, lengths[std::size_t(group[i])]);
        given += double(lengths[std::size_t(group[i])]);
      }
      padded += double(longest) * double(end - begin);
    }
  }
  return padded / given - 1.0;
}

TEST_CASE("LengthBuckets: a batch comes when its bucket is full, the rest in order of length", "[data]") {
  //                     0  1  2  3  4  5  6  7  8  9
  const Indices lengths{9, 1, 8, 2, 7, 3, 1, 9, 5, 2};
  data::LengthBuckets buckets(lengths, {.boundaries = {3, 6}});
  CHECK(buckets.size() == 10);
  CHECK(rest_of(buckets, {.batch_size = 3}) == Groups{{0, 2, 4}, {1, 3, 5}, {6, 9, 8}, {7}});
  CHECK(buckets.length({.batch_size = 3}) == 4);
  buckets.set_epoch(1);
  CHECK(rest_of(buckets, {.batch_size = 1, .world_size = 2}) == Groups{{0, 2}, {1, 3}, {5, 6}, {4, 7}, {9, 8}});
  buckets.set_epoch(0);
  // Of the four that are left, the last visited one stays out.
  CHECK(rest_of(buckets, {.batch_size = 3, .drop_last = true}) == Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 7}});
  CHECK(buckets.length({.batch_size = 3, .drop_last = true}) == 3);
}

TEST_CASE("LengthBuckets: quantiles give buckets of as many records", "[data]") {
  const Indices lengths = sentence_lengths(10'000, 1);
  const data::LengthBuckets buckets(lengths, {.num_buckets = 8});
  REQUIRE(buckets.boundaries().size() == 7);
  std::vector<double> counts(8);
  for (const std::int64_t length : lengths) {
    counts[std::size_t(std::lower_bound(buckets.boundaries().begin(), buckets.boundaries().end(), length) -
                       buckets.boundaries().begin())] += 1.0;
  }
  const double most_of_one_length = 700.0;  // lengths near the mode come 600 times each
  for (const double count : counts) {
    CHECK(std::abs(count - 1250.0) < most_of_one_length);
  }
  CHECK(data::LengthBuckets(Indices{5, 5, 5, 5}, {.num_buckets = 4}).boundaries().empty());
  CHECK(data::LengthBuckets(Indices{5, 5, 7, 5}, {.num_buckets = 4}).boundaries() == Indices{5});
  CHECK(data::LengthBuckets(Indices{1, 2, 3, 4, 5, 6}, {.num_buckets = 3}).boundaries() == Indices{2, 4});
}

struct Case {
  Indices lengths;
  data::LengthBucketsOptions options;
  data::BatchShape shape;
  std::int64_t epoch;
};

Case random_case(std::mt19937& random) {
  const auto below = [&](std::int64_t bound) { return std::int64_t(random() % std::uint64_t(bound)); };
  Case out;
  const std::int64_t longest = 1 + below(60);
  for (std::int64_t i = below(400); i >= 0; --i) {
    out.lengths.push_back(below(longest + 1));
  }
  out.options.num_buckets = 1 + below(8);
  out.options.shuffle = below(4) > 0;
  out.options.seed = random();
  if (below(2) == 0) {
    out.options.max_tokens = longest + below(200);
  }
  out.shape = {.batch_size = 1 + below(12), .world_size = 1 + below(4), .drop_last = below(3) == 0};
  out.epoch = below(5);
  return out;
}

TEST_CASE("LengthBuckets: over random cases every record comes once, in batches that fit", "[data]") {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const Case c = random_case(random);
    data::LengthBuckets buckets(c.lengths, c.options);
    buckets.set_epoch(c.epoch);
    const Groups groups = rest_of(buckets, c.shape);
    REQUIRE(buckets.length(c.shape) == std::int64_t(groups.size()));
    const Indices all = sorted(flat(groups));
    REQUIRE(std::set<std::int64_t>(all.begin(), all.end()).size() == all.size());
    const auto missing = std::int64_t(c.lengths.size() - all.size());
    REQUIRE(missing >= 0);
    if (!c.shape.drop_last) {
      REQUIRE(missing == 0);
    } else {
      REQUIRE(missing < (c.options.max_tokens ? c.shape.world_size : c.shape.global_size()));
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto size = std::int64_t(groups[i].size());
      const bool last = i + 1 == groups.size();
      REQUIRE((size % c.shape.world_size == 0 || (last && !c.shape.drop_last)));
      if (c.options.max_tokens) {
        std::int64_t longest = 0;
        for (const std::int64_t record : groups[i]) {
          longest = std::max(longest, c.lengths[std::size_t(record)]);
        }
        REQUIRE((size + c.shape.world_size - 1) / c.shape.world_size * longest <= *c.options.max_tokens);
      } else {
        REQUIRE((size == c.shape.global_size() || (last && !c.shape.drop_last)));
      }
    }
    data::LengthBuckets again(
        std::int64_t(c.lengths.size()), [&](std::int64_t i) { return c.lengths[std::size_t(i)]; }, c.options);
    again.set_epoch(c.epoch);
    REQUIRE(rest_of(again, c.shape) == groups);
  }
}

TEST_CASE("LengthBuckets: resumed anywhere with the same shape the order is that of the uninterrupted run", "[data]") {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const Case c = random_case(random);
    data::LengthBuckets whole(c.lengths, c.options);
    whole.set_epoch(c.epoch);
    const Groups expected = rest_of(whole, c.shape);
    data::LengthBuckets before(c.lengths, c.options);
    before.set_epoch(c.epoch);
    Groups groups;
    for (std::size_t stop = random() % (expected.size() + 1); groups.size() < stop;) {
      groups.push_back(next(before, c.shape));
    }
    data::LengthBucketsOptions other_seed = c.options;
    other_seed.seed += 1;  // the state brings its own
    data::LengthBuckets after(c.lengths, other_seed);
    after.load_state_dict(before.state_dict());
    REQUIRE(danling::bitwise_equal(after.state_dict(), before.state_dict()));
    for (const Indices& group : rest_of(after, c.shape)) {
      groups.push_back(group);
    }
    REQUIRE(groups == expected);
  }
}

TEST_CASE("LengthBuckets: resumed with other shapes, again and again, no record is lost and none repeated", "[data]") {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    Case c = random_case(random);
    c.shape.drop_last = false;
    Indices seen;
    State state;
    for (bool ended = false; !ended;) {
      data::LengthBuckets buckets(c.lengths, c.options);
      buckets.set_epoch(c.epoch);
      if (!state.is_null()) {
        buckets.load_state_dict(state);
      }
      for (auto steps = random() % 5; steps > 0 && !ended; --steps) {
        const Indices group = next(buckets, c.shape);
        seen.insert(seen.end(), group.begin(), group.end());
        ended = group.empty();
      }
      state = buckets.state_dict();
      const Case other = random_case(random);
      c.shape.batch_size = other.shape.batch_size;
      c.shape.world_size = other.shape.world_size;
      c.options.num_buckets = other.options.num_buckets;
      if (c.options.max_tokens) {
        c.options.max_tokens = *std::max_element(c.lengths.begin(), c.lengths.end()) + 1 + std::int64_t(random() % 200);
      }
    }
    REQUIRE(sorted(seen) == iota(std::int64_t(c.lengths.size())));
  }
}

TEST_CASE("LengthBuckets: epochs differ when shuffled, and padding is a fraction of that of a random order", "[data]") {
  const Indices lengths = sentence_lengths(20'000, 3);
  const data::BatchShape shape{.batch_size = 32, .world_size = 2};
  data::LengthBuckets buckets(lengths, {.num_buckets = 16, .shuffle = true, .seed = 1});
  const Groups first = rest_of(buckets, shape);
  buckets.set_epoch(1);
  const Groups second = rest_of(buckets, shape);
  CHECK(first != second);
  buckets.set_epoch(0);
  CHECK(rest_of(buckets, shape) == first);
  data::LengthBuckets one(lengths, {.num_buckets = 1, .shuffle = true, .seed = 1});
  const double random_order = padding_of(rest_of(one, shape), lengths, 2);
  const double bucketed = padding_of(first, lengths, 2);
  CAPTURE(random_order, bucketed);
  CHECK(random_order > 2.0);  // the longest of 32 such lengths is more than three times their mean
  CHECK(bucketed < 0.2 * random_order);
}

TEST_CASE("LengthBuckets: lengths and options that do not fit are refused by name", "[data]") {
  const auto data_error = [](Indices lengths, data::LengthBucketsOptions options = {}) {
    return error_of<danling::DataError>([&] { data::LengthBuckets(lengths, options); });
  };
  const auto config_error = [](data::LengthBucketsOptions options) {
    return error_of<danling::ConfigError>([&] { data::LengthBuckets(Indices{1, 2}, options); });
  };
  CHECK(data_error({3, -1}) == "[data.length_buckets] expected lengths of at least 0, got -1 for record 1");
  CHECK(data_error({3, 9}, {.max_tokens = 8}) ==
        "[data.length_buckets] expected lengths of at most max_tokens, 8, got 9 for record 1; cut it or leave it out");
  CHECK(config_error({.boundaries = {3, 3}}) ==
        "[data.length_buckets] expected boundaries in ascending order, got 3, 3");
  CHECK(config_error({.num_buckets = 0}) == "[data.length_buckets] expected num_buckets of at least 1, got 0");
  CHECK(config_error({.max_tokens = 0}) == "[data.length_buckets] expected max_tokens of at least 1, got 0");

  data::LengthBuckets given(Indices{1, 2, 3});
  data::LengthBuckets shuffled(Indices{1, 2, 3}, {.shuffle = true});
  CHECK(error_of<danling::StateError>([&] { given.load_state_dict(shuffled.state_dict()); }) ==
        "[data.sampler] expected the state of a sampler with shuffle: false, got one with shuffle: true");
  data::LengthBuckets fewer(Indices{1, 2});
  CHECK(error_of<danling::StateError>([&] { fewer.load_state_dict(given.state_dict()); }) ==
        "[data.sampler] expected a state of 2 records, got one of 3; load it with the data that it was saved with; a "
        "run may leave it out (checkpoint.exclude_from_loading: dataloaders)");
  State damaged = given.state_dict();
  damaged["position"] = std::int64_t{4};
  CHECK(error_of<danling::StateError>([&] { given.load_state_dict(damaged); }) ==
        "[data.sampler] expected a position in [0, 3], got 4");
  damaged["position"] = std::int64_t{2};
  damaged["waiting"] = at::tensor({0, 3}, at::kLong);
  CHECK(error_of<danling::StateError>([&] { given.load_state_dict(damaged); }) ==
        "[data.sampler] expected waiting records in [0, 3), got 3");
  damaged["waiting"] = at::tensor({0, 1, 2}, at::kLong);
  CHECK(error_of<danling::StateError>([&] { given.load_state_dict(damaged); }) ==
        "[data.sampler] expected up to 2 waiting records, got Long [3]");
}

data::Sample sequence(std::int64_t length, bool with_target) {
  return {at::arange(10, 10 + length, at::kLong), with_target ? at::full({length}, 7, at::kLong) : at::Tensor(), {}};
}

TEST_CASE("collate_padded: refuses a padding value that the dtype cannot hold", "[data]") {
  const auto samples = [](at::ScalarType inputs, at::ScalarType targets) {
    std::vector<data::Sample> out(2);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto length = static_cast<std::int64_t>(i + 1);
      out[i].input = at::zeros({length}, inputs);
      out[i].target = at::zeros({length}, targets);
    }
    return out;
  };
  CHECK(error_of<danling::DataError>([&] { data::collate_padded(samples(at::kFloat, at::kBool)); }) ==
        "[data.collate] expected a padding value that Bool can hold, got -100.0 for the target; set target_value of "
        "PaddingOptions");
  CHECK(error_of<danling::DataError>([&] { data::collate_padded(samples(at::kFloat, at::kByte)); }) ==
        "[data.collate] expected a padding value that Byte can hold, got -100.0 for the target; set target_value of "
        "PaddingOptions");
  CHECK(error_of<danling::DataError>([&] { data::collate_padded(samples(at::kLong, at::kLong), {.value = 0.5}); }) ==
        "[data.collate] expected a padding value that Long can hold, got 0.5 for the input; set value of "
        "PaddingOptions");
  const danling::Batch batch = data::collate_padded(samples(at::kHalf, at::kBool), {.value = 0.1, .target_value = 0});
  CHECK(batch.target.sum().item<std::int64_t>() == 0);
}

TEST_CASE("collate_padded: inputs and targets of sequences, with lengths, mask and a normalizer", "[data]") {
  const danling::Batch batch = data::collate_padded({sequence(2, true), sequence(3, true)}, {.value = 1.0});
  CHECK(batch.input.equal(at::tensor({10, 11, 1, 10, 11, 12}, at::kLong).view({2, 3})));
  CHECK(batch.target.equal(at::tensor({7, 7, -100, 7, 7, 7}, at::kLong).view({2, 3})));
  CHECK(batch.at("lengths").equal(at::tensor({2, 3}, at::kLong)));
  CHECK(batch.at("mask").equal(at::tensor({1, 1, 0, 1, 1, 1}, at::kLong).view({2, 3}).to(at::kBool)));
  CHECK(batch.loss_normalizer == 5);
  const danling::Batch rounded = data::collate_padded({sequence(2, false), sequence(3, false)}, {.multiple_of = 8});
  CHECK(rounded.input.size(1) == 8);
  CHECK(rounded.at("mask").sum().item<std::int64_t>() == 5);
  CHECK_FALSE(rounded.target.defined());
  CHECK(rounded.loss_normalizer == std::nullopt);
}

TEST_CASE("collate_padded: further dimensions stay, targets of another length are stacked", "[data]") {
  std::vector<data::Sample> samples;
  for (const std::int64_t length : {4, 1}) {
    State extra;
    extra["id"] = length;
    samples.push_back({at::full({length, 2}, double(length)), at::scalar_tensor(length, at::kLong), extra});
  }
  const danling::Batch batch = data::collate_padded(samples);
  CHECK(batch.input.sizes() == at::IntArrayRef{2, 4, 2});
  CHECK(batch.input[1][0].sum().item<double>() == 2.0);
  CHECK(batch.input[1].sum().item<double>() == 2.0);
  CHECK(batch.target.equal(at::tensor({4, 1}, at::kLong)));
  CHECK(batch.at("id").equal(at::tensor({4, 1}, at::kLong)));
  CHECK(batch.loss_normalizer == std::nullopt);
}

TEST_CASE("collate_padded: a sample that does not fit is named", "[data]") {
  const auto error = [](std::vector<data::Sample> samples) {
    return error_of<danling::DataError>([&] { data::collate_padded(samples); });
  };
  CHECK(error({}) == "[data.collate] expected at least one sample, got none");
  CHECK(error({{at::zeros({2, 3}), {}, {}}, {at::zeros({4, 2}), {}, {}}}) ==
        "[data.collate] expected input of Float [2, 3], but for the length, as in sample 0, got Float [4, 2] in sample "
        "1");
  CHECK(error({{at::zeros({2}), {}, {}}, {at::zeros({}), {}, {}}}) ==
        "[data.collate] expected input a tensor of shape [L, ...] as in sample 0, got Float [] in sample 1");
  State extra;
  extra["mask"] = at::zeros({2});
  CHECK(error({{at::zeros({2}), {}, extra}}) ==
        "[data.collate] expected extra no 'mask', which padding adds, as in sample 0, got one in sample 0");
}

}  // namespace length_buckets_test

}  // namespace
