// Loaders with and without workers through the same calls: roll-backs, visits, errors; every state is loaded again.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/ops/zeros.h>

#include <danling/data/concat.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/length_buckets.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/loader_visit.hpp>
#include <danling/data/map.hpp>
#include <danling/data/shuffle_stream.hpp>
#include <danling/data/stream_parts.hpp>
#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_rollback_test {

using namespace loader_test;
using Loader = data::Loader<Records>;
using danling_test::error_of;

/// Records that take long to read, or fail once.
class Weather {
 public:
  void set(bool slow, std::map<std::int64_t, int> failures = {}) {
    const std::lock_guard lock(mutex_);
    slow_ = slow;
    failures_ = std::move(failures);
  }
  void meet(std::int64_t record) {
    bool slow = false;
    {
      const std::lock_guard lock(mutex_);
      slow = slow_ && record % 3 == 0;
      const auto found = failures_.find(record);
      if (found != failures_.end() && found->second-- > 0) {
        throw std::runtime_error("a bad moment");
      }
    }
    if (slow) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  std::mutex mutex_;
  bool slow_ = false;
  std::map<std::int64_t, int> failures_;
};

struct Tick {
  std::int64_t value = 0;
  static Records collate(std::vector<Tick> ticks) {
    Records out;
    for (const Tick& tick : ticks) {
      out.values.push_back(tick.value);
    }
    return out;
  }
};

/// Yields first + 0, 1, ...; an even epoch has two more than an odd one.
struct Ticks {
  std::shared_ptr<Weather> weather;
  std::int64_t first = 0;
  std::int64_t size = 0;
  std::int64_t epoch = 0;
  std::int64_t at = 0;

  std::optional<Tick> next() {
    if (at >= size - epoch % 2 * 2) {
      return std::nullopt;
    }
    weather->meet(first + at);
    return Tick{first + at++};
  }
  void reset(std::int64_t of_epoch) {
    epoch = of_epoch;
    at = 0;
  }
  State state_dict() const {
    State state;
    state["epoch"] = epoch;
    state["at"] = at;
    return state;
  }
  void load_state_dict(const State& state) {
    danling::check<danling::StateError>(state.at("at").integer() >= 0, "test.stream", "expected a place, got none");
    epoch = state.at("epoch").integer();
    at = state.at("at").integer();
  }
};

/// Single samples, which the loader collates.
struct TickList {
  std::shared_ptr<Weather> weather;
  std::int64_t size() const { return 43; }
  Tick get(std::int64_t index) const {
    weather->meet(index);
    return {index};
  }
};

constexpr int num_kinds = 8;
constexpr std::int64_t num_epochs = 20;  // passes that follow each other come to more than calls name

struct Made {
  data::Source<Records> source;
  data::LoaderOptions options;
};

Made make(int kind, const std::shared_ptr<Weather>& weather, data::LoaderOptions options) {
  const auto tens = [](const Tick& tick) { return tick.value % 10 != 0; };
  const auto same = [weather](Tick tick) {
    weather->meet(tick.value + 1000);
    return tick;
  };
  switch (kind) {
    case 0:
      options.shuffle = true;
      return {TickList{weather}, options};
    case 1:
    case 2: {
      data::LengthBucketsOptions buckets{.num_buckets = 4, .shuffle = true};
      if (kind == 2) {
        buckets.max_tokens = 70;
      }
      Numbers lengths(43);
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        lengths[i] = static_cast<std::int64_t>(1 + i * 7 % 11);
      }
      options.batch_sampler = std::make_shared<data::LengthBuckets>(lengths, buckets);
      return {TickList{weather}, options};
    }
    case 3:
      return {std::make_shared<Counting>(43, [weather](std::int64_t first) { weather->meet(first); }), options};
    case 4:
      return {data::map(data::shuffle(Ticks{weather, 0, 43}, {.buffer_size = 6, .seed = 3}), same), options};
    case 5:
      return {data::interleave(data::shuffle(Ticks{weather, 0, 20}, {.buffer_size = 30}), Ticks{weather, 100, 25}),
              options};
    case 6:
      return {data::concat(data::filter(Ticks{weather, 0, 25}, tens), data::take(Ticks{weather, 100, 40}, 20)),
              options};
    default:
      return {data::map(Ticks{weather, 0, 40}, same), options};  // whole batches of some sizes
  }
}

using Batches = std::vector<Numbers>;

Batches rest_of(Loader& loader) {
  Batches out;
  while (loader.next()) {
    out.push_back(loader.batch().values);
  }
  return out;
}

/// The batches of every epoch, read from beginning to end in one thread.
std::vector<Batches> undisturbed(int kind, const data::LoaderOptions& options) {
  std::vector<Batches> out;
  for (std::int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    Made made = make(kind, std::make_shared<Weather>(), options);
    Loader loader(made.source, made.options);
    loader.start_epoch(epoch);
    out.push_back(rest_of(loader));
  }
  return out;
}

class Walker {
 public:
  Walker(int kind, data::LoaderOptions options, std::int64_t workers, bool persistent) {
    options.num_workers = workers;
    options.persistent_workers = persistent && workers > 0;
    Made made = make(kind, weather_, options);
    loader_.emplace(made.source, made.options);
  }

  Loader& loader() { return *loader_; }
  Weather& weather() { return *weather_; }

  /// The next batch, however often it fails; nothing at the end, and before start_epoch.
  template <class T>
  std::optional<Numbers> next(T& pass) {
    for (int tries = 0; tries < 50; ++tries) {
      try {
        return pass.next() ? std::optional(loader_->batch().values) : std::nullopt;
      } catch (const danling::DataError&) {
      } catch (const danling::StateError&) {
        return std::nullopt;
      }
    }
    FAIL("the batch failed for good");
    return std::nullopt;
  }
  void move() {
    Loader moved = std::move(*loader_);
    loader_.emplace(std::move(moved));
  }

 private:
  std::shared_ptr<Weather> weather_ = std::make_shared<Weather>();
  std::optional<Loader> loader_;
};

/// What one call gave, to be the same for all.
struct Outcome {
  Batches batches;
  std::vector<State> states;
  std::int64_t epoch = 0;
  std::int64_t position = 0;
  std::int64_t samples = 0;
  std::int64_t global_step = 0;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }

 private:
  std::mt19937_64 engine_;
};

struct Call {
  int what = 0;
  std::int64_t epoch = 0;
  std::int64_t count = 0;
  bool flag = false;
  State state;  // to load
};

void read(Walker& walker, std::int64_t count, Outcome& out) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (const auto batch = walker.next(walker.loader())) {
      out.batches.push_back(*batch);
    }
  }
}

Outcome make_call(Walker& walker, const Call& call) {
  Outcome out;
  Loader& loader = walker.loader();
  switch (call.what) {
    case 0:
      loader.start_epoch(call.epoch);
      read(walker, call.count, out);
      break;
    case 1: {  // roll back
      loader.load_state_dict(call.state);
      if (call.flag) {
        loader.start_epoch(std::max<std::int64_t>(loader.epoch(), 0));
      }
      break;
    }
    case 2: {  // an evaluation in the middle, saved inside, left early or read to its end
      data::LoaderVisit visit(loader, call.epoch, true);
      for (std::int64_t i = 0; i < call.count; ++i) {
        if (const auto batch = walker.next(visit)) {
          out.batches.push_back(*batch);
        }
        out.states.push_back(loader.state_dict());
      }
      if (call.flag) {
        data::LoaderVisit inner(loader, call.epoch + 1, true);
        if (const auto batch = walker.next(inner)) {
          out.batches.push_back(*batch);
        }
        out.states.push_back(loader.state_dict());
      }
      break;
    }
    case 3:  // a pass that breaks
      try {
        for (Records& batch : loader) {
          out.batches.push_back(batch.values);
          if (static_cast<std::int64_t>(out.batches.size()) > call.count) {
            break;
          }
        }
      } catch (const danling::DataError&) {
        read(walker, 1, out);
      }
      break;
    case 4: {  // a state that does not fit
      State wrong = call.state;
      wrong["samples"] = -5;
      CHECK_THROWS_AS(loader.load_state_dict(wrong), danling::StateError);
      break;
    }
    case 5:
      walker.move();
      break;
    default:
      read(walker, call.count, out);
  }
  out.states.push_back(walker.loader().state_dict());
  out.epoch = walker.loader().epoch();
  out.position = walker.loader().position();
  out.samples = walker.loader().samples();
  out.global_step = walker.loader().global_step();
  return out;
}

void check_same(const Outcome& got, const Outcome& expected, bool fair) {
  REQUIRE(got.batches == expected.batches);
  REQUIRE(got.epoch == expected.epoch);
  REQUIRE(got.position == expected.position);
  REQUIRE(got.samples == expected.samples);
  REQUIRE(got.global_step == expected.global_step);
  REQUIRE(got.states.size() == expected.states.size());
  for (std::size_t i = 0; i < got.states.size(); ++i) {
    State own = got.states[i];
    State other = expected.states[i];
    if (!fair) {  // a batch that fails when it is looked for is no end, wherever it failed first
      own.map().erase("finished");
      other.map().erase("finished");
    }
    REQUIRE(danling::first_difference(own, other) == "");
  }
}

TEST_CASE("Loader: whatever is called, with any number of workers, the same batches and states come", "[data]") {
  Draw draw(31);
  for (int round = 0; round < 160; ++round) {
    const int kind = round % num_kinds;
    data::LoaderOptions options{.batch_size = draw(1, 9), .drop_last = draw(0, 1) == 1, .split = "train"};
    if (draw(0, 2) == 0) {
      options.snapshot_every_n_steps = draw(1, 3);
    }
    const std::vector<Batches> expected = undisturbed(kind, options);
    const bool slow = draw(0, 1) == 1;
    const bool fair = draw(0, 1) == 1;
    std::vector<std::unique_ptr<Walker>> walkers;
    for (std::int64_t workers = 0; workers < 4; ++workers) {
      walkers.push_back(std::make_unique<Walker>(kind, options, workers, draw(0, 1) == 1));
      walkers.back()->weather().set(slow);
    }
    std::vector<State> saved = {walkers[0]->loader().state_dict()};
    for (int step = 0; step < 14; ++step) {
      Call call{static_cast<int>(draw(0, 9)), draw(0, 2), draw(0, 7), draw(0, 1) == 1, {}};
      call.state = saved[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(saved.size()) - 1))];
      CAPTURE(round, kind, step, call.what, call.epoch, call.count, call.flag, options.batch_size, options.drop_last,
              options.snapshot_every_n_steps.value_or(0), slow, fair);
      std::map<std::int64_t, int> failures;
      for (int i = 0; i < 3 && !fair; ++i) {
        failures[draw(0, 42) + draw(0, 1) * 1000] = 1;
      }
      std::optional<Outcome> first;
      for (std::size_t i = 0; i < walkers.size(); ++i) {
        CAPTURE(i);
        walkers[i]->weather().set(slow, call.what == 3 ? std::map<std::int64_t, int>() : failures);
        const Outcome outcome = make_call(*walkers[i], call);
        if (!first) {
          first = outcome;
        }
        check_same(outcome, *first, fair);
      }
      saved.push_back(first->states.back());
      const State& state = saved.back();
      const std::int64_t epoch = state.at("epoch").integer();
      if (epoch < 0) {
        continue;
      }
      // What the state says to be left is what is left of the epoch.
      Walker fresh(kind, options, draw(0, 3), false);
      fresh.loader().load_state_dict(state);
      REQUIRE(danling::first_difference(fresh.loader().state_dict(), state) == "");
      fresh.loader().start_epoch(epoch);
      const Batches& all = expected[static_cast<std::size_t>(epoch)];
      REQUIRE(rest_of(fresh.loader()) == Batches(all.begin() + state.at("batches").integer(), all.end()));
    }
  }
}

TEST_CASE("Loader: every roll-back of a loader whose workers run gives each record once", "[data]") {
  for (const std::int64_t workers : {2, 3}) {
    for (const int kind : {2, 3, 4}) {
      Draw draw(5);
      data::LoaderOptions options{.batch_size = 2, .split = "train"};
      const Batches expected = undisturbed(kind, options)[0];
      Walker walker(kind, options, workers, true);
      Loader& loader = walker.loader();
      for (int round = 0; round < 60; ++round) {
        loader.start_epoch(0);
        const std::int64_t before = draw(0, 6);
        for (std::int64_t i = 0; i < before; ++i) {
          REQUIRE(loader.next());
        }
        const State state = loader.state_dict();
        for (std::int64_t i = draw(0, 6); i > 0; --i) {
          REQUIRE(loader.next());
        }
        loader.load_state_dict(state);
        loader.start_epoch(0);
        REQUIRE(rest_of(loader) == Batches(expected.begin() + before, expected.end()));
      }
    }
  }
}

TEST_CASE("Loader: a stream saved at the end of an epoch goes on, also where drop_last left out its end", "[data]") {
  for (const std::int64_t workers : {0, 1, 2, 3}) {
    for (const bool drop_last : {false, true}) {
      for (const std::int64_t size : {12, 16}) {
        data::LoaderOptions options{.batch_size = 8, .drop_last = drop_last, .split = "train", .num_workers = workers};
        Loader before(std::make_shared<Counting>(size), options);
        before.start_epoch(0);
        while (before.next()) {
          const State state = before.state_dict();
          Loader after(std::make_shared<Counting>(size), options);
          after.load_state_dict(state);
          after.start_epoch(0);
          const std::int64_t end = drop_last ? size / 8 * 8 : size;
          CHECK(drain(after) == counting(end - before.samples(), before.samples()));
          after.start_epoch(1);
          CHECK(drain(after) == counting(end, 1000));
        }
        Loader after(std::make_shared<Counting>(size), options);
        after.load_state_dict(before.state_dict());
        after.start_epoch(0);
        CHECK_FALSE(after.next());
      }
    }
  }
}

TEST_CASE("Loader: a pass after the state of a finished epoch is the next epoch, not an empty one", "[data]") {
  const auto sources = [](int kind) {
    return kind == 0 ? data::Source<Records>(std::make_shared<Computed>(20)) : std::make_shared<Counting>(20);
  };
  for (const std::int64_t workers : {0, 2}) {
    for (const bool drop_last : {false, true}) {
      for (const int kind : {0, 1}) {
        data::LoaderOptions options{.batch_size = 6, .drop_last = drop_last, .num_workers = workers};
        Loader before(sources(kind), options);
        before.start_epoch(4);
        State half;
        while (before.next()) {
          if (before.position() == 2) {
            half = before.state_dict();
            CHECK_FALSE(half.map().contains("finished"));
          }
          if (before.is_last()) {  // whether the end was met or is only known
            CHECK(before.state_dict().at("finished").boolean());
          }
        }
        for (const bool finished : {true, false}) {
          Loader after(sources(kind), options);
          after.load_state_dict(finished ? before.state_dict() : half);
          std::int64_t seen = 0;
          for (Records& batch : after) {
            CHECK(after.epoch() == (finished ? 5 : 4));
            seen += batch.size();
          }
          CHECK(seen == (drop_last ? 18 : 20) - (finished ? 0 : 12));
        }
        Loader after(sources(kind), options);
        after.load_state_dict(before.state_dict());
        after.start_epoch(4);  // who asks for that epoch gets what is left of it
        CHECK_FALSE(after.next());
      }
    }
  }
}

TEST_CASE("Loader: the state is that of the batches that were delivered, whatever workers have read ahead", "[data]") {
  for (int kind = 0; kind < num_kinds; ++kind) {
    data::LoaderOptions options{.batch_size = 3, .split = "train"};
    CAPTURE(kind);
    Walker direct(kind, options, 0, false);
    Walker ahead(kind, options, 3, false);
    direct.loader().start_epoch(1);
    ahead.loader().start_epoch(1);
    while (direct.loader().next()) {
      REQUIRE(ahead.loader().next());
      const State state = direct.loader().state_dict();
      REQUIRE(danling::first_difference(ahead.loader().state_dict(), state) == "");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the workers go on
      REQUIRE(danling::first_difference(ahead.loader().state_dict(), state) == "");
      // One that goes on from there saves the same bytes further on.
      Walker resumed(kind, options, 2, false);
      resumed.loader().load_state_dict(state);
      resumed.loader().start_epoch(1);
      if (!direct.loader().is_last()) {
        Walker other(kind, options, 0, false);
        other.loader().load_state_dict(state);
        other.loader().start_epoch(1);
        REQUIRE(resumed.loader().next());
        REQUIRE(other.loader().next());
        REQUIRE(danling::first_difference(resumed.loader().state_dict(), other.loader().state_dict()) == "");
      }
    }
  }
}

TEST_CASE("Loader: batches of a stream are full with drop_last, also where a gap ends", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    State state;
    {
      Loader before(std::make_shared<Counting>(38), {.batch_size = 3});
      before.start_epoch(0);
      state = before.state_dict();
      state["delivered"] = State::List{State(3), State(6)};  // the second batch overtook the first
      state["batches"] = 1;
    }
    const auto batches = [&](bool drop_last, State* end) {
      Loader loader(std::make_shared<Counting>(38), {.batch_size = 8, .drop_last = drop_last, .num_workers = workers});
      loader.load_state_dict(state);
      loader.start_epoch(0);
      Batches out = rest_of(loader);
      if (end != nullptr) {
        *end = loader.state_dict();
      }
      return out;
    };
    const Batches full = {counting(8, 6), counting(8, 14), counting(8, 22), counting(8, 30)};
    Batches all = full;
    all.insert(all.begin(), counting(3));
    CHECK(batches(false, nullptr) == all);
    State end;
    CHECK(batches(true, &end) == full);
    CHECK(end.at("samples").integer() == 38);
    CHECK_FALSE(end.map().contains("delivered"));
    State small = state;
    small["delivered"] = State::List{State(1), State(6)};
    Loader shared(std::make_shared<Counting>(38), {.batch_size = 2, .drop_last = true, .shard = {.world_size = 2}});
    shared.load_state_dict(small);  // one sample for two processes, which drop_last leaves out
    shared.start_epoch(0);
    REQUIRE(shared.next());
    CHECK(shared.batch().values == Numbers{6, 7});
  }
}

TEST_CASE("Loader: a stream that changes before it refuses a state goes back, and so do its workers", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    for (const bool started : {false, true}) {
      const auto weather = std::make_shared<Weather>();
      Loader loader(data::concat(Ticks{weather, 0, 20}, Ticks{weather, 100, 10}),
                    {.batch_size = 4, .num_workers = workers});
      loader.start_epoch(0);
      for (int i = 0; i < 3; ++i) {
        REQUIRE(loader.next());
      }
      const State good = loader.state_dict();
      if (!started) {
        loader.load_state_dict(good);
      }
      State wrong = good;
      State::List parts = good.at("stream").at("parts").items();
      parts[0]["at"] = 2;  // is loaded, and then the second fails
      parts[1]["at"] = -1;
      wrong["stream"]["parts"] = parts;
      CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(wrong); }) ==
            "[test.stream] expected a place, got none");
      CHECK(danling::first_difference(loader.state_dict(), good) == "");
      if (!started) {
        loader.start_epoch(0);
      }
      Numbers expected = counting(8, 12);
      const Numbers second = counting(10, 100);
      expected.insert(expected.end(), second.begin(), second.end());
      CHECK(drain(loader) == expected);
    }
  }
}

/// Its state is the tensor that it changes.
struct Shared {
  at::Tensor at = at::zeros({1}, at::kLong);
  std::optional<Tick> next() {
    const auto value = at.item<std::int64_t>();
    if (value == 30) {
      return std::nullopt;
    }
    at += 1;
    return Tick{value};
  }
  void reset(std::int64_t) { at = at::zeros({1}, at::kLong); }
  State state_dict() const { return at; }
  void load_state_dict(const State& state) { at = state.tensor(); }
};

TEST_CASE("Loader: a stream that goes on does not change what was saved or loaded", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    Loader loader(Shared(), {.batch_size = 4, .num_workers = workers});
    loader.start_epoch(0);
    REQUIRE(loader.next());
    const State state = loader.state_dict();
    for (int times = 0; times < 2; ++times) {
      loader.load_state_dict(state);
      loader.start_epoch(0);
      CHECK(drain(loader) == counting(26, 4));
      CHECK(state.at("stream").tensor().item<std::int64_t>() == 4);
    }
  }
}

TEST_CASE("Loader: a moved loader goes on, and its workers with it", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    for (const int kind : {0, 2, 4}) {
      data::LoaderOptions options{.batch_size = 3, .split = "train", .num_workers = workers};
      const auto expected = undisturbed(kind, options);
      Made made = make(kind, std::make_shared<Weather>(), options);
      Loader first(made.source, made.options);
      first.start_epoch(0);
      REQUIRE(first.next());
      const State state = first.state_dict();
      Loader second = std::move(first);
      CHECK(second.batch().values == expected[0][0]);
      CHECK(danling::first_difference(second.state_dict(), state) == "");
      REQUIRE(second.next());
      CHECK(second.batch().values == expected[0][1]);
      Made other = make(kind, std::make_shared<Weather>(), options);
      Loader third(other.source, other.options);
      third.start_epoch(1);
      REQUIRE(third.next());  // its workers run
      third = std::move(second);
      CHECK(rest_of(third) == Batches(expected[0].begin() + 2, expected[0].end()));
      std::vector<Loader> several;
      several.push_back(std::move(third));
      several.front().start_epoch(1);
      CHECK(rest_of(several.front()) == expected[1]);
    }
  }
}

TEST_CASE("Loader: moving a loader ends its visit, and it goes back to its position", "[data]") {
  Loader loader(std::make_shared<Counting>(20), {.batch_size = 4, .num_workers = 2});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  data::LoaderVisit visit(loader, 7, true);
  REQUIRE(visit.next());
  Loader moved = std::move(loader);
  CHECK(error_of<danling::StateError>([&] { visit.next(); }) ==
        "[data.loader] expected a pass that goes on, got one that has ended: something else used the loader");
  CHECK(drain(moved) == counting(16, 4));
}

TEST_CASE("Loader: one that was moved from says so", "[data]") {
  Loader loader(std::make_shared<Counting>(20), {.batch_size = 4, .num_workers = 2});
  auto place = loader.begin();
  Loader moved = std::move(loader);
  const std::string expected = "[data.loader] expected a loader, got one that was moved from";
  const auto refusal = [](const auto& work) { return error_of<danling::StateError>(work); };
  CHECK(refusal([&] { ++place; }) == expected);
  CHECK(refusal([&] { *place; }) == expected);
  CHECK(refusal([&] { loader.begin(); }) == expected);
  CHECK(refusal([&] { loader.start_epoch(0); }) == expected);
  CHECK(refusal([&] { loader.next(); }) == expected);
  CHECK(refusal([&] { loader.info(); }) == expected);
  CHECK(refusal([&] { loader.length(); }) == expected);
  CHECK(refusal([&] { loader.num_samples(); }) == expected);
  CHECK(refusal([&] { loader.state_dict(); }) == expected);
  CHECK(refusal([&] { loader.load_state_dict(moved.state_dict()); }) == expected);
  CHECK(refusal([&] { data::LoaderVisit(loader, 0, true); }) == expected);
  loader = std::move(moved);
  CHECK(drain(loader) == counting(16, 4));
}

}  // namespace loader_rollback_test

}  // namespace
