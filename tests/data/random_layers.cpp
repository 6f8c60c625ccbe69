// Functions one above another draw unrelated random numbers, those of the
// lowest what they would draw alone.
#include <map>
#include <mutex>
#include <set>

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <danling/data/concat.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>
#include <danling/data/map_batches.hpp>
#include <danling/data/shuffle_stream.hpp>
#include <danling/data/stream_parts.hpp>
#include <danling/data/subset.hpp>
#include <danling/data/transforms.hpp>

#include <support/catch.hpp>

namespace random_layers_test {

namespace {

namespace data = danling::data;
using danling::Batch;
using danling::State;
using data::BatchInfo;
using data::Sample;
using data::SampleInfo;

/// Which record of the loader's dataset drew which key, function by function.
class Draws {
 public:
  void add(const char* function, std::int64_t record, data::RandomKey key) {
    const std::lock_guard lock(mutex_);
    keys_[record][function] = {key.high, key.low};
  }
  std::map<std::int64_t, std::map<std::string, std::pair<std::uint32_t, std::uint32_t>>> keys() const { return keys_; }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::map<std::string, std::pair<std::uint32_t, std::uint32_t>>> keys_;
};
using SharedDraws = std::shared_ptr<Draws>;

auto of_sample(const SharedDraws& draws, const char* name) {
  return [draws, name](Sample sample, const SampleInfo& info) {
    draws->add(name, info.index(), info.key());
    return sample;
  };
}
auto of_batch(const SharedDraws& draws, const char* name) {
  return [draws, name](Batch batch, const BatchInfo& info) {
    for (std::size_t i = 0; i < info.size(); ++i) {
      draws->add(name, info.indices[i], info.key(i));
    }
    return batch;
  };
}
const auto same = [](Sample sample) { return sample; };

struct Numbers {
  std::int64_t size() const { return 12; }
  Sample get(std::int64_t i) const { return {.input = at::arange(i, i + 1)}; }
};
/// Draws random numbers itself.
struct Noisy {
  SharedDraws draws;
  std::int64_t size() const { return 12; }
  Sample get(std::int64_t i, const SampleInfo& info) const {
    draws->add("own", info.index(), info.key());
    return {.input = at::arange(i, i + 1)};
  }
};
struct NumberStream {
  std::int64_t at = 0;
  std::optional<Sample> next() { return at < 12 ? std::optional(Sample{.input = at::arange(at, ++at)}) : std::nullopt; }
  void reset(std::int64_t) { at = 0; }
  State state_dict() const { return at; }
  void load_state_dict(const State& state) { at = state.integer(); }
};

constexpr std::uint64_t seed = 11;

void read(const data::Source<Batch>& source, std::int64_t batch_size, std::int64_t num_workers) {
  data::Loader<Batch> loader(source, {.batch_size = batch_size, .seed = seed, .num_workers = num_workers});
  loader.start_epoch(2);
  while (loader.next()) {
  }
}

/// Reads what `make` gives, in two layouts, which must agree, and looks for
/// `functions` unrelated keys a record.
template <class Make>
auto check_unrelated(const Make& make, std::size_t functions, std::size_t records = 12) {
  const auto one = std::make_shared<Draws>();
  read(make(one), 5, 0);
  const auto other = std::make_shared<Draws>();
  read(make(other), 3, 2);
  CHECK(one->keys() == other->keys());
  CHECK(one->keys().size() == records);
  std::set<std::pair<std::uint32_t, std::uint32_t>> all;
  for (const auto& [record, keys] : one->keys()) {
    CHECK(keys.size() == functions);
    for (const auto& [name, key] : keys) {
      CHECK(all.insert(key).second);
    }
  }
  return one->keys();
}

TEST_CASE("random layers: maps of maps draw unrelated numbers", "[data]") {
  const auto keys = check_unrelated(
      [](const SharedDraws& draws) {
        const auto one = data::map(Numbers(), of_sample(draws, "one"));
        const auto kept = data::filter(data::map(one, same), [](const Sample&) { return true; });
        const auto joined = data::map(data::concat(Numbers(), kept), of_sample(draws, "two"));
        const auto part = data::subset(joined, {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
        return data::map_batches(data::map_batches(part, of_batch(draws, "three")), of_batch(draws, "four"));
      },
      4);
  // The lowest draws what it would alone: the key that the loader's info has.
  data::Loader<Batch> loader(Numbers(), {.batch_size = 12, .seed = seed});
  loader.start_epoch(2);
  REQUIRE(loader.next());
  for (std::size_t i = 0; i < 12; ++i) {
    const data::RandomKey key = loader.info().key(i);
    CHECK(keys.at(static_cast<std::int64_t>(i)).at("one") == std::pair(key.high, key.low));
  }
}

TEST_CASE("random layers: a function draws others than a dataset that draws itself", "[data]") {
  check_unrelated([](const SharedDraws& draws) { return data::map(Noisy{draws}, of_sample(draws, "one")); }, 2);
  check_unrelated([](const SharedDraws& draws) { return data::map_batches(Noisy{draws}, of_batch(draws, "one")); }, 2);
}

TEST_CASE("random layers: parts of unlike depth below one function", "[data]") {
  check_unrelated(
      [](const SharedDraws& draws) {
        const auto low = data::map_batches(Numbers(), of_batch(draws, "one"));
        const auto high = data::map_batches(low, of_batch(draws, "two"));
        // Six records of each, so that batches have both.
        const std::vector<std::int64_t> half = {0, 1, 2, 3, 4, 5};
        const auto joined = data::concat(data::subset(high, half), data::subset(high, half));
        return data::map_batches(data::concat(std::vector{joined}), of_batch(draws, "three"));
      },
      3);
}

TEST_CASE("random layers: streams, erased and joined ones too", "[data]") {
  check_unrelated(
      [](const SharedDraws& draws) {
        const auto one = data::map(data::map(NumberStream(), same), of_sample(draws, "one"));
        const auto taken = data::take(data::shuffle(one, {.buffer_size = 3}), 12);
        const auto two = data::map(data::interleave(data::take(NumberStream(), 0), taken), of_sample(draws, "two"));
        return data::map_batches(data::map_batches(two, of_batch(draws, "three")), of_batch(draws, "four"));
      },
      4);
}

TEST_CASE(
    "random layers: where a sampler repeats records every layer has keys "
    "for each place",
    "[data]") {
  BatchInfo info;
  info.indices = {4, 4};
  info.epoch_key = data::RandomKey::of(1);
  info.batch_key = data::RandomKey::of(2);
  info.sample_keys = {data::RandomKey::of(3), data::RandomKey::of(4)};
  std::set<std::pair<std::uint32_t, std::uint32_t>> all;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const BatchInfo own = info.at_layer(layer);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(own.key(i) == SampleInfo(info, i).at_layer(layer).key());
      CHECK(own.metadata(i).rng_key == SampleInfo(info, i).at_layer(layer).metadata().rng_key);
      CHECK(all.emplace(own.key(i).high, own.key(i).low).second);
    }
    CHECK(all.emplace(own.batch_key.high, own.batch_key.low).second);
  }
  CHECK(info.at_layer(0).key(1) == info.key(1));
}

TEST_CASE("random layers: one random flip above another does not undo it", "[data]") {
  struct Rows {
    std::int64_t size() const { return 64; }
    Batch get_batch(std::span<const std::int64_t> indices) const {
      return {.input =
                  at::arange(2).reshape({1, 1, 1, 2}).repeat({static_cast<std::int64_t>(indices.size()), 1, 1, 1})};
    }
  };
  const auto flip = data::transforms::random_horizontal_flip();
  data::Loader<Batch> loader(data::map_batches(data::map_batches(Rows(), flip), flip), {.batch_size = 64});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  const auto flipped = loader.batch().input.select(3, 0).sum().item<std::int64_t>();
  CHECK(flipped > 12);  // of 64 with probability 1/2: 5 standard deviations
  CHECK(flipped < 52);
}

}  // namespace

}  // namespace random_layers_test
