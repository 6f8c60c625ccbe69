#include <ATen/ops/full.h>

#include <thread>

#include <danling/data/map_stream.hpp>
#include <danling/data/stream.hpp>
#include <support/error.hpp>

// A user's own types.
namespace danling_stream_user {

/// What is read: numbers that are not yet samples; no collate.
struct Record {
  std::int64_t value = 0;
};

/// Yields epoch * 1000, epoch * 1000 + 1, ...: `count` records per epoch.
struct Records {
  std::int64_t count = 10;
  std::int64_t at = 0;
  std::int64_t epoch = 0;

  std::optional<Record> next() { return at < count ? std::optional<Record>(Record{epoch * 1000 + at++}) : std::nullopt; }
  void reset(std::int64_t to) {
    epoch = to;
    at = 0;
  }
  danling::State state_dict() const {
    danling::State state;
    state["at"] = at;
    state["epoch"] = epoch;
    return state;
  }
  void load_state_dict(const danling::State& state) {
    at = state.at("at").integer();
    epoch = state.at("epoch").integer();
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
          return Number{info.random().below(1'000'000)};
        }));
    return drain(*stream, batch_size);
  };
  const Values expected = drawn(1);
  CHECK(expected.size() == 10);
  CHECK(expected[3] == data::Random(data::RandomKey::of(5).fold_in(3)).below(1'000'000));
  CHECK(drawn(3) == expected);
  CHECK(drawn(16) == expected);
}

TEST_CASE("map of a stream: skipping decodes nothing, and a failure names the record", "[data]") {
  auto stream = data::make_stream(data::map(Records(), [](Record record) {
    danling::check<danling::DataError>(record.value >= 4, "test.decode", "expected 4 or more, got ", record.value);
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

}  // namespace stream_combinators_test

}  // namespace
