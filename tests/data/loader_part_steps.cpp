// A process with several shares of each global batch: its steps, errors in them, and what is refused.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/data/loader_visit.hpp>

#include <support/error.hpp>

#include "loader_kinds.hpp"

namespace {

namespace loader_part_steps_test {

using namespace loader_test;
using danling::first_difference;
using danling_test::error_of;

TEST_CASE("Loader: four shares on three processes", "[data]") {
  // 26 samples: three global batches of 8, then two samples, which shares 0 and 1 take.
  const std::vector<data::Shard> shards = {{0, 4, false, 2}, {2, 4}, {3, 4}};
  for (const std::int64_t workers : {0, 2}) {
    std::vector<State> states;
    for (const data::Shard& shard : shards) {
      Loader loader(std::make_shared<Computed>(26), {.batch_size = 2, .num_workers = workers, .shard = shard});
      CHECK(loader.length() == (shard.rank == 0 ? 4 : 3));
      loader.start_epoch(0);
      for (std::int64_t step = 0; step < 3; ++step) {
        for (std::int64_t part = 0; part < shard.num_shares; ++part) {
          REQUIRE(loader.next());
          CHECK(loader.batch().values == counting(2, step * 8 + (shard.rank + part) * 2));
          CHECK(loader.share_index() == part);
        }
      }
      states.push_back(loader.state_dict());
      CHECK(loader.is_last() == (shard.rank > 0));
      REQUIRE(loader.next() == (shard.rank == 0));
      if (shard.rank == 0) {
        CHECK(loader.batch().values == Numbers{24});
        CHECK(loader.num_shares() == 2);
        CHECK_FALSE(loader.is_last());
        REQUIRE(loader.next());
        CHECK(loader.batch().values == Numbers{25});
        CHECK(loader.is_last());
        CHECK_FALSE(loader.next());
      }
    }
    CHECK(first_difference(data::LoaderBase::merge_states(states), states.front()) == "");
    CHECK(states.front().at("samples").integer() == 24);
    CHECK(states.front().at("batches").integer() == 3);
  }
  // Eight shares on one process: of 27 samples, three are left for the first three shares.
  Loader alone(std::make_shared<Counting>(27), {.batch_size = 1, .shard = {0, 8, false, 8}});
  alone.start_epoch(0);
  for (int i = 0; i < 25; ++i) {
    REQUIRE(alone.next());
  }
  CHECK(alone.position() == 3);
  CHECK(alone.num_shares() == 3);
  CHECK(alone.global_batch_size() == 3);
}

TEST_CASE("Loader: an error in one part comes before the first part of its step, and the step is repeated whole",
          "[data]") {
  for (const bool stream : {false, true}) {
    for (const std::int64_t workers : {0, 2}) {
      CAPTURE(stream, workers);
      const auto weather = std::make_shared<Weather>();
      weather->set(false, {{stream ? 12 : 13, 2}});  // of part 2 of step 1: twice
      const auto meet = [weather](std::int64_t record) { weather->meet(record); };
      const auto meet_all = [meet](std::span<const std::int64_t> records) {
        std::for_each(records.begin(), records.end(), meet);
      };
      data::Source<Records> source = std::make_shared<Computed>(24, meet_all);
      if (stream) {
        source = std::make_shared<Counting>(24, meet);
      }
      Loader loader(source, {.batch_size = 2, .num_workers = workers, .shard = {.world_size = 4, .num_shares = 4}});
      loader.start_epoch(0);
      Numbers seen;
      std::vector<std::string> errors;
      for (bool more = true; more;) {
        try {
          more = loader.next();
          if (more) {
            seen.insert(seen.end(), loader.batch().values.begin(), loader.batch().values.end());
          }
        } catch (const danling::DataError& error) {
          errors.emplace_back(error.what());
          CHECK(seen == counting(8));
          CHECK(loader.position() == 1);
        }
      }
      CHECK(seen == counting(24));
      const std::string text = danling::detail::concat(
          "[data.read] expected a batch, got: a bad moment; while reading records ", stream ? "12 to 13" : "12, 13");
      CHECK(errors == std::vector<std::string>{text, text});
    }
  }
}

TEST_CASE("Loader: a visit that keeps the position begins between global batches", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    Loader loader(
        std::make_shared<Computed>(24),
        {.batch_size = 2, .split = "train", .num_workers = workers, .shard = {.world_size = 3, .num_shares = 2}});
    loader.start_epoch(0);
    REQUIRE(loader.next());
    CHECK(error_of<danling::StateError>([&] { data::LoaderVisit(loader, 0, true); }) ==
          "[data.loader] expected a loader between global batches, got one that has delivered 1 of 2 parts (split "
          "'train'); it could not return there after an evaluation: read the other parts first");
    REQUIRE(loader.next());
    CHECK(loader.batch().values == Numbers{2, 3});
    const State state = loader.state_dict();
    {
      data::LoaderVisit visit(loader, 1, true);
      for (int i = 0; i < 3; ++i) {
        REQUIRE(visit.next());
      }
      CHECK(first_difference(loader.state_dict(), state) == "");
    }
    REQUIRE(loader.next());
    CHECK(loader.batch().values == Numbers{6, 7});
    // A loader may move between two parts.
    Loader moved = std::move(loader);
    CHECK(moved.share_index() == 0);
    REQUIRE(moved.next());
    CHECK(moved.batch().values == Numbers{8, 9});
    CHECK(moved.position() == 2);
    CHECK(drain(moved) == Numbers{12, 13, 14, 15, 18, 19, 20, 21});
  }
}

TEST_CASE("Loader: a stream whose part gives fewer samples before its end is refused, with the records of the part",
          "[data]") {
  /// 0, 1, ..., never over a multiple of five in one batch.
  class Fives final : public data::Stream<Records> {
   public:
    std::optional<Records> next(std::int64_t) override { return std::nullopt; }
    std::function<Records()> read(std::int64_t num_samples, const data::BatchInfo&) override {
      const std::int64_t count = std::min(num_samples, 5 - at_ % 5);
      at_ += count;
      return [from = at_ - count, count] { return Records{counting(count, from), {}, {}}; };
    }
    void reset(std::int64_t) override { at_ = 0; }
    State state_dict() const override { return State(at_); }
    void load_state_dict(const State& state) override { at_ = state.integer(); }

   private:
    std::int64_t at_ = 0;
  };
  Loader loader(std::make_shared<Fives>(), {.batch_size = 2, .shard = {.world_size = 4, .num_shares = 4}});
  loader.start_epoch(0);
  CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
        "[data.loader] expected 2 samples from the stream, or fewer at its end, got 1 before its end; while reading "
        "records 4 to 5");
}

TEST_CASE("Loader: parts that do not fit the shares are refused", "[data]") {
  const auto error = [](data::LoaderOptions options) {
    return error_of<danling::ConfigError>([&] { Loader(std::make_shared<Computed>(9), options); });
  };
  CHECK(error({.shard = {.world_size = 4, .num_shares = 0}}) ==
        "[data.loader] expected shard.num_shares in [1, world_size - rank], got 0 from rank 0 of 4");
  CHECK(error({.split = "train", .shard = {.rank = 2, .world_size = 4, .num_shares = 3}}) ==
        "[data.loader] expected shard.num_shares in [1, world_size - rank], got 3 from rank 2 of 4 (split 'train')");
  CHECK(error({.in_order = false, .shard = {.world_size = 4, .num_shares = 2}}) ==
        "[data.loader] expected in_order: true for a process with several parts of a global batch, got false with 2 "
        "parts");
  CHECK(error({.num_workers = 4, .shard = {.world_size = 100000, .num_shares = 20000}}) ==
        "[data.loader] expected shard.num_shares of at most 16384 with 4 workers, got 20000");
}

}  // namespace loader_part_steps_test

}  // namespace
