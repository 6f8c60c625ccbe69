#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include <ATen/ops/full.h>

#include <danling/data/concat.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>
#include <danling/data/map_batches.hpp>
#include <danling/data/shuffle_stream.hpp>
#include <danling/data/stream_adapter.hpp>

#include <support/counted_place.hpp>
#include <support/error.hpp>

// A user's own types.
namespace danling_stream_user {

/// A raw record: a number that is not yet a sample; it has no collate.
struct Record {
  std::int64_t value = 0;
};

/// Yields epoch * 1000, epoch * 1000 + 1, ...: `count` records per epoch.
struct Records : danling_test::CountedPlace {
  explicit Records(std::int64_t in_all = 10) : count(in_all) {}

  std::int64_t count;

  std::optional<Record> next() {
    return at < count ? std::optional<Record>(Record{epoch * 1000 + at++}) : std::nullopt;
  }
  std::string split() const { return "train"; }
};

/// A batch that is no `Batch`.
struct Numbers {
  std::vector<std::int64_t> values;
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
  Numbers to(c10::Device) const { return *this; }
};
struct Number {
  std::int64_t value = 0;
};
inline Numbers collate(std::vector<Number> numbers) {
  Numbers out;
  for (const Number number : numbers) {
    out.values.push_back(number.value);
  }
  return out;
}

}  // namespace danling_stream_user

namespace {

namespace stream_combinators_test {

namespace data = danling::data;
using danling::State;
using danling_stream_user::Number;
using danling_stream_user::Numbers;
using danling_stream_user::Record;
using danling_stream_user::Records;
using danling_test::error_of;
using Values = std::vector<std::int64_t>;

static_assert(data::RecordStream<Records> && !data::SampleStream<Records> && !data::StreamLike<Records>);

/// Of samples first, first + 1, ...; keys depend on the record only.
data::BatchInfo info_of(std::int64_t first, std::int64_t count) {
  data::BatchInfo info;
  for (std::int64_t i = 0; i < count; ++i) {
    info.indices.push_back(first + i);
  }
  info.epoch_key = data::RandomKey::of(5);
  info.position = first;
  return info;
}

Number decode(Record record) { return {record.value}; }

/// All values of what is left, in batches of `batch_size`.
template <class B>
Values drain(data::Stream<B>& stream, std::int64_t batch_size) {
  Values out;
  std::int64_t at = 0;
  while (const auto job = stream.read(batch_size, info_of(at, batch_size))) {
    const Numbers batch = job();
    at += batch.size();
    out.insert(out.end(), batch.values.begin(), batch.values.end());
  }
  return out;
}

TEST_CASE("map of a stream: the function runs in the job, in any thread", "[data]") {
  std::vector<std::thread::id> threads(10);
  auto stream = data::make_stream(data::map(Records(), [&](Record record) {
    threads.at(static_cast<std::size_t>(record.value)) = std::this_thread::get_id();
    return Number{2 * record.value};
  }));
  CHECK(stream->split() == "train");
  CHECK(stream->train());
  stream->reset(0);
  const auto first = stream->read(4, info_of(0, 4));
  const auto second = stream->read(8, info_of(4, 8));
  CHECK_FALSE(stream->read(4, info_of(12, 4)));
  CHECK(threads == std::vector<std::thread::id>(10));
  Values late;
  std::thread::id worker;
  std::thread thread([&] {
    late = second().values;
    worker = std::this_thread::get_id();
  });
  thread.join();
  CHECK(late == Values{8, 10, 12, 14, 16, 18});
  CHECK(first().values == Values{0, 2, 4, 6});
  CHECK(threads[0] == std::this_thread::get_id());
  CHECK(threads[9] == worker);
}

TEST_CASE("map of a stream: random numbers are those of the record, in batches of any size", "[data]") {
  const auto drawn = [](std::int64_t batch_size) {
    auto stream =
        data::make_stream(data::map(data::map(Records(), decode), [](Number number, const data::SampleInfo& info) {
          CHECK(info.index() == number.value);
          return Number{info.random().randint(1'000'000)};
        }));
    return drain(*stream, batch_size);
  };
  const Values expected = drawn(1);
  CHECK(expected.size() == 10);
  CHECK(expected[3] == data::Random(data::RandomKey::of(5).fold_in(3)).randint(1'000'000));
  CHECK(drawn(3) == expected);
  CHECK(drawn(16) == expected);
}

TEST_CASE("map of a stream: skipping decodes nothing, and a failure names the record", "[data]") {
  auto stream = data::make_stream(data::map(Records(), [](Record record) {
    danling::detail::check<danling::DataError>(record.value >= 4, "test.decode", "expected 4 or more, got ",
                                               record.value);
    return Number{record.value};
  }));
  CHECK(stream->skip(4) == 4);
  CHECK(stream->next(2)->values == Values{4, 5});
  CHECK(stream->skip(9) == 4);
  CHECK_FALSE(stream->next(1));
  stream->reset(0);
  const auto job = stream->read(2, info_of(20, 2));
  CHECK(error_of<danling::DataError>([&] { job(); }) ==
        "[test.decode] expected 4 or more, got 0; while reading record 20");
}

/// All values that are left.
template <class T>
Values all_of(T& stream) {
  Values out;
  while (const auto record = stream.next()) {
    out.push_back(record->value);
  }
  return out;
}

Values iota(std::int64_t begin, std::int64_t count) {
  Values out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

Values sorted(Values values) {
  std::sort(values.begin(), values.end());
  return values;
}

/// The whole epoch, saved and loaded into another object after every `stop` records.
template <class T, class Make>
Values resumed(const Make& make, std::int64_t epoch, int stop) {
  T stream = make();
  stream.reset(epoch);
  Values out;
  for (bool ended = false; !ended;) {
    for (int i = 0; i < stop && !ended; ++i) {
      const auto record = stream.next();
      ended = !record;
      if (record) {
        out.push_back(record->value);
      }
    }
    T next = make();
    next.load_state_dict(stream.state_dict());
    CHECK(danling::bitwise_equal(next.state_dict(), stream.state_dict()));
    stream = std::move(next);
  }
  return out;
}

TEST_CASE("filter of a stream: batches are full of what is kept", "[data]") {
  const auto kept = [](Record record) { return record.value % 3 == 0; };
  auto stream = data::make_stream(data::map(data::filter(Records(20), kept), decode));
  CHECK(stream->next(3)->values == Values{0, 3, 6});
  CHECK(stream->next(3)->values == Values{9, 12, 15});
  CHECK(stream->next(3)->values == Values{18});
  CHECK_FALSE(stream->next(3));
  stream->reset(1);
  CHECK(stream->skip(2) == 2);
  CHECK(stream->next(1)->values == Values{1008});
  // After a map, on what it makes.
  auto made = data::filter(data::map(Records(20), decode), [](Number number) { return number.value >= 17; });
  CHECK(all_of(made) == Values{17, 18, 19});
  CHECK(made.split() == "train");
}

TEST_CASE("take: the first samples of every epoch", "[data]") {
  auto few = data::take(Records(), 4);
  CHECK(all_of(few) == Values{0, 1, 2, 3});
  few.reset(2);
  CHECK(few.skip(3) == 3);
  State state = few.state_dict();
  CHECK(few.skip(3) == 1);
  auto loaded = data::take(Records(), 4);
  loaded.load_state_dict(state);
  CHECK(all_of(loaded) == Values{2003});
  auto more = data::take(Records(), 40);
  CHECK(all_of(more) == iota(0, 10));
  state["taken"] = std::int64_t{5};
  CHECK(error_of<danling::StateError>([&] { loaded.load_state_dict(state); }) ==
        "[data.take] expected a state of up to 4 samples, got one of 5");
  CHECK(error_of<danling::DataError>([] { data::take(Records(), -1); }) ==
        "[data.take] expected a number of samples of at least 0, got -1");
}

TEST_CASE("shuffle of a stream: every record once, in an order of (seed, split, epoch)", "[data]") {
  const auto shuffled = [](std::int64_t count, data::ShuffleOptions options, std::int64_t epoch) {
    auto stream = data::shuffle(Records(count), std::move(options));
    stream.reset(epoch);
    return all_of(stream);
  };
  for (const std::int64_t count : {0, 1, 2, 9, 10, 11, 100, 999}) {
    for (const std::int64_t buffer_size : {1, 2, 7, 50, 2000}) {
      CHECK(sorted(shuffled(count, {.buffer_size = buffer_size}, 0)) == iota(0, count));
    }
  }
  const Values first = shuffled(999, {.buffer_size = 50, .seed = 1}, 0);
  CHECK(shuffled(999, {.buffer_size = 50, .seed = 1}, 0) == first);
  CHECK(shuffled(999, {.buffer_size = 50, .seed = 2}, 0) != first);
  CHECK(shuffled(999, {.buffer_size = 50, .seed = 1, .split = "val"}, 0) != first);
  Values second = shuffled(999, {.buffer_size = 50, .seed = 1}, 1);
  for (auto& value : second) {
    value -= 1000;
  }
  CHECK(sorted(second) == iota(0, 999));
  CHECK(second != first);
  CHECK(error_of<danling::ConfigError>([] { data::shuffle(Records(), {.buffer_size = 0}); }) ==
        "[data.shuffle] expected a buffer_size in [1, 2^40], got 0");
}

TEST_CASE("shuffle of a stream: a record moves by the size of the buffer, and about that many are held", "[data]") {
  const std::int64_t count = 20'000;
  const std::int64_t size = 500;
  struct Counting : Records {
    std::int64_t* read;
    std::optional<Record> next() {
      auto record = Records::next();
      *read += record ? 1 : 0;
      return record;
    }
  };
  std::int64_t read = 0;
  auto stream = data::shuffle(Counting{Records(count), &read}, {.buffer_size = size, .seed = 3});
  std::int64_t yielded = 0;
  std::int64_t held = 0;
  std::int64_t most_held = 0;
  double distance = 0.0;
  while (const auto record = stream.next()) {
    const std::int64_t moved = yielded - record->value;
    CHECK(std::abs(moved) <= 2 * size + 200);  // the buffer's own size varies
    if (yielded >= 2000 && yielded < count - 2000) {
      distance += double(std::abs(moved));
      held += read - yielded;
    }
    most_held = std::max(most_held, read - yielded++);
  }
  // The difference between a uniform delay of up to 2n and its mean n is n / 2 on average.
  CHECK(std::abs(distance / double(count - 4000) - double(size) / 2.0) < 0.05 * double(size));
  CHECK(std::abs(double(held) / double(count - 4000) - double(size)) < 0.05 * double(size));
  CHECK(most_held < size + size / 4 + 60);
}

TEST_CASE("shuffle of a stream: resumed anywhere, any number of times, the order is the same", "[data]") {
  for (const std::int64_t buffer_size : {1, 3, 8, 40, 500}) {
    const auto make = [&] { return data::shuffle(Records(300), {.buffer_size = buffer_size, .seed = 4}); };
    auto whole = make();
    whole.reset(2);
    const Values expected = all_of(whole);
    for (const int stop : {1, 2, 7, 50, 299, 301}) {
      CHECK(resumed<decltype(whole)>(make, 2, stop) == expected);
    }
  }
  auto saved = data::shuffle(Records(), {.buffer_size = 4, .seed = 4, .split = "train"});
  saved.reset(1);
  saved.next();
  auto loaded = data::shuffle(Records(), {.buffer_size = 4, .seed = 9});
  loaded.load_state_dict(saved.state_dict());
  CHECK(all_of(loaded) == all_of(saved));
  auto other = data::shuffle(Records(), {.buffer_size = 5});
  CHECK(error_of<danling::StateError>([&] { other.load_state_dict(saved.state_dict()); }) ==
        "[data.shuffle] expected the state of a buffer of 5 records, got one of 4");
}

TEST_CASE("shuffle of a stream: what a resume reads again is bounded by the buffer, wherever it is", "[data]") {
  const std::int64_t size = 100;
  auto stream = data::shuffle(Records(5000), {.buffer_size = size});
  for (std::int64_t yielded = 0; stream.next(); ++yielded) {
    const State state = stream.state_dict();
    CHECK(yielded + 1 - state.at("number").integer() <= std::int64_t(2.25 * double(size)) + 1);
  }
}

TEST_CASE("concat and interleave: one after another, or in turn, and resumed anywhere", "[data]") {
  const auto mapped = [](std::int64_t count, std::int64_t shift) {
    return data::map(Records(count), [shift](Record record) { return Number{record.value + shift}; });
  };
  const auto chained = [&] { return data::concat(mapped(3, 0), mapped(0, 0), data::map(Records(2), decode)); };
  const auto in_turn = [&] { return data::interleave(mapped(2, 100), mapped(4, 200), mapped(1, 300)); };
  const Values expected_chain = {0, 1, 2, 0, 1};
  const Values expected_turns = {100, 200, 300, 101, 201, 202, 203};
  for (const std::int64_t batch_size : {1, 2, 3, 10}) {
    CHECK(drain(*data::make_stream(chained()), batch_size) == expected_chain);
    CHECK(drain(*data::make_stream(in_turn()), batch_size) == expected_turns);
  }
  for (int stop = 0; stop <= 7; ++stop) {
    auto before = data::make_stream(in_turn());
    before->reset(0);
    Values seen;
    for (int i = 0; i < stop; ++i) {
      seen.push_back(before->next(1)->values.front());
    }
    auto after = data::make_stream(in_turn());
    after->load_state_dict(before->state_dict());
    const Values rest = drain(*after, 2);
    seen.insert(seen.end(), rest.begin(), rest.end());
    CHECK(seen == expected_turns);
  }
  CHECK(data::make_stream(chained())->split() == "train");
  auto two = data::make_stream(data::concat(mapped(1, 0), mapped(1, 0)));
  auto three = data::make_stream(chained());
  CHECK(error_of<danling::StateError>([&] { three->load_state_dict(two->state_dict()); }) ==
        "[data.streams] expected the state of 3 streams, got one of 2");
  auto turns = data::make_stream(in_turn());
  danling::State wrong = danling::clone(turns->state_dict());
  turns->reset(0);
  CHECK(turns->next(2)->values == Values{100, 200});
  wrong["parts"].list()[2] = "no position";
  CHECK_THROWS_AS(turns->load_state_dict(wrong), danling::StateError);
  CHECK(turns->next(3)->values == Values{300, 101, 201});
}

TEST_CASE("Stream combinators: a loader with workers resumes a shuffled stream after what it delivered", "[data]") {
  const auto load = [](std::int64_t num_workers) {
    auto stream = data::map(data::shuffle(Records(100), {.buffer_size = 10, .seed = 1}),
                            [](Record record, const data::SampleInfo& info) {
                              return Number{record.value * 1000 + info.random().randint(1000)};
                            });
    auto doubled = data::map_batches(std::move(stream), [](Numbers batch, const data::BatchInfo& info) {
      // Catch's assertions are for one thread.
      danling::detail::check<danling::DataError>(info.size() == batch.values.size(), "test",
                                                 "expected a batch of its info");
      return batch;
    });
    return std::make_unique<data::Loader<Numbers>>(
        doubled, data::LoaderOptions{.batch_size = 8, .seed = 5, .num_workers = num_workers});
  };
  auto plain = load(0);
  Values expected;
  for (Numbers& batch : *plain) {
    expected.insert(expected.end(), batch.values.begin(), batch.values.end());
  }
  REQUIRE(expected.size() == 100);
  auto loader = load(3);
  loader->start_epoch(0);
  Values seen;
  for (int i = 0; i < 5; ++i) {
    REQUIRE(loader->next());
    seen.insert(seen.end(), loader->batch().values.begin(), loader->batch().values.end());
  }
  auto after = load(2);
  after->load_state_dict(loader->state_dict());
  after->start_epoch(0);
  while (after->next()) {
    seen.insert(seen.end(), after->batch().values.begin(), after->batch().values.end());
  }
  CHECK(seen == expected);
}

}  // namespace stream_combinators_test

}  // namespace
