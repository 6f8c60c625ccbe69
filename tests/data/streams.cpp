#include <ATen/ops/arange.h>

#include <danling/data/loader.hpp>
#include <danling/data/source.hpp>

#include <support/counted_place.hpp>
#include <support/error.hpp>

namespace {

namespace streams_test {

namespace data = danling::data;
using danling::Batch;
using danling::State;
using danling_test::error_of;

/// Yields epoch * 100, epoch * 100 + 1, ...: `count` numbers per epoch, in batches.
struct Counter : danling_test::CountedPlace {
  std::int64_t count = 10;
  std::int64_t bad = -1;

  std::optional<Batch> next(std::int64_t num_samples) {
    const std::int64_t size = std::min(num_samples, count - at);
    if (size <= 0) {
      return std::nullopt;
    }
    if (bad >= at && bad < at + size) {
      bad = -1;
      danling::detail::fail<danling::DataError>("test.stream", "expected a sound record, got a damaged one");
    }
    Batch batch{.input = at::arange(epoch * 100 + at, epoch * 100 + at + size, at::kLong)};
    at += size;
    return batch;
  }
  std::string split() const { return "train"; }
};

/// The same numbers one by one.
struct Samples {
  Counter counter;
  std::optional<data::Sample> next() {
    auto batch = counter.next(1);
    return batch ? std::optional(data::Sample{batch->input[0], {}}) : std::nullopt;
  }
  void reset(std::int64_t to) { counter.reset(to); }
  State state_dict() const { return counter.state_dict(); }
  void load_state_dict(const State& state) { counter.load_state_dict(state); }
};

static_assert(data::StreamLike<Counter> && data::StreamLike<Samples> && !data::StreamLike<int>);
static_assert(!data::DatasetLike<Counter>);

using Batches = std::vector<std::vector<std::int64_t>>;

Batches drain(data::Loader<Batch>& loader) {
  Batches out;
  while (loader.next()) {
    const at::Tensor input = loader.batch().input;
    out.emplace_back(input.const_data_ptr<std::int64_t>(), input.const_data_ptr<std::int64_t>() + input.numel());
    CHECK(loader.position() >= 1);
    CHECK(loader.batch_size() == input.numel());
  }
  return out;
}

TEST_CASE("Loader: a stream has no length, and its last batch is announced all the same", "[data]") {
  data::Loader<Batch> loader(Counter(), {.batch_size = 4});
  CHECK(loader.length() == std::nullopt);
  CHECK(loader.num_samples() == std::nullopt);
  CHECK(loader.source().is_stream());
  CHECK(loader.source().train());
  loader.start_epoch(2);
  std::vector<bool> last;
  while (loader.next()) {
    last.push_back(loader.is_last());
  }
  CHECK(last == std::vector<bool>{false, false, true});
  CHECK(loader.samples() == 10);
  CHECK_FALSE(loader.next());
  loader.start_epoch(2);
  CHECK(drain(loader) == Batches{{200, 201, 202, 203}, {204, 205, 206, 207}, {208, 209}});
}

TEST_CASE("Loader: drop_last leaves out a stream's smaller batch", "[data]") {
  data::Loader<Batch> loader(Counter(), {.batch_size = 4, .drop_last = true});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK_FALSE(loader.is_last());
  REQUIRE(loader.next());
  CHECK(loader.is_last());
  CHECK_FALSE(loader.next());
}

TEST_CASE("Loader: a stream of samples is collated", "[data]") {
  data::Loader<Batch> loader(Samples(), {.batch_size = 4});
  loader.start_epoch(1);
  CHECK(drain(loader) == Batches{{100, 101, 102, 103}, {104, 105, 106, 107}, {108, 109}});
}

TEST_CASE("Loader: a stream resumes after the last batch delivered, not after the one looked ahead at", "[data]") {
  for (int stop = 0; stop <= 3; ++stop) {
    data::Loader<Batch> before(Counter(), {.batch_size = 4});
    before.start_epoch(3);
    Batches seen;
    for (int i = 0; i < stop; ++i) {
      REQUIRE(before.next());
      const at::Tensor input = before.batch().input;
      seen.emplace_back(input.const_data_ptr<std::int64_t>(), input.const_data_ptr<std::int64_t>() + input.numel());
    }
    data::Loader<Batch> after(Samples(), {.batch_size = 4});
    after.load_state_dict(before.state_dict());
    after.start_epoch(3);
    CHECK(after.position() == stop);
    for (const auto& batch : drain(after)) {
      seen.push_back(batch);
    }
    CHECK(seen == Batches{{300, 301, 302, 303}, {304, 305, 306, 307}, {308, 309}});
    after.start_epoch(4);
    CHECK(drain(after).front().front() == 400);
  }
}

TEST_CASE("Loader: an error while looking ahead belongs to the next batch", "[data]") {
  Counter counter;
  counter.bad = 5;
  data::Loader<Batch> loader(counter, {.batch_size = 4});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK_FALSE(loader.is_last());
  CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
        "[test.stream] expected a sound record, got a damaged one; while reading records 4 to 7");
  CHECK(loader.position() == 1);
  CHECK(drain(loader) == Batches{{4, 5, 6, 7}, {8, 9}});
}

TEST_CASE("Loader: what a stream cannot do is refused by name", "[data]") {
  CHECK(error_of<danling::ConfigError>([] { data::Loader<Batch>(Counter(), {.shuffle = true, .split = "train"}); }) ==
        "[data.loader] expected shuffle: false for a stream, got true (split 'train'); shuffle inside the stream");
  CHECK(error_of<danling::ConfigError>([] {
          data::Loader<Batch>(Counter(), {.sampler = std::make_shared<data::SequentialSampler>(4)});
        }) == "[data.loader] expected no sampler for a stream, got one");
  data::Loader<Batch> stream(Counter(), {.split = "train"});
  stream.start_epoch(0);
  State indexed = stream.state_dict();
  indexed.map().erase("stream");
  CHECK(error_of<danling::StateError>([&] { stream.load_state_dict(indexed); }) ==
        "[data.loader] expected the state of a stream, got that of a dataset (split 'train')");
}

}  // namespace streams_test

}  // namespace
