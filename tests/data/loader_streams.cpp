#include <atomic>
#include <map>

#include <danling/data/loader.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_streams_test {

using namespace loader_test;
using Loader = data::Loader<Records>;
using danling_test::error_of;

std::vector<Numbers> batches_of(Loader& loader) {
  std::vector<Numbers> out;
  while (loader.next()) {
    out.push_back(loader.batch().values);
    CHECK(loader.info().indices == loader.batch().values);  // epoch 0: records are numbered as they come
  }
  return out;
}

TEST_CASE("Loader: ranks that share a stream pass over each other's samples", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    const std::vector<Numbers> expected[2] = {{{0, 1}, {4, 5}, {8, 9}}, {{2, 3}, {6, 7}, {10}}};
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const auto stream = std::make_shared<Counting>(11);
      Loader loader(stream, {.batch_size = 2, .num_workers = workers, .shard = {.rank = rank, .world_size = 2}});
      loader.start_epoch(0);
      CHECK(batches_of(loader) == expected[rank]);
      CHECK(loader.samples() == 11);
      CHECK(stream->num_read() == (rank == 0 ? 6 : 5));
      CHECK(stream->num_skipped() == (rank == 0 ? 5 : 6));
    }
    // The end of the stream may leave a rank without a last batch.
    Loader second(std::make_shared<Counting>(10),
                  {.batch_size = 2, .num_workers = workers, .shard = {.rank = 1, .world_size = 2}});
    second.start_epoch(0);
    CHECK(batches_of(second) == std::vector<Numbers>{{2, 3}, {6, 7}});
  }
}

TEST_CASE("Loader: the last batch of a stream is announced on every rank, with and without drop_last", "[data]") {
  for (const std::int64_t workers : {0, 1, 3}) {
    for (const bool in_order : {true, false}) {
      for (const bool drop_last : {false, true}) {
        for (std::int64_t size = 0; size < 14; ++size) {
          std::int64_t seen = 0;
          for (std::int64_t rank = 0; rank < 2; ++rank) {
            Loader loader(std::make_shared<Counting>(size), {.batch_size = 2,
                                                             .drop_last = drop_last,
                                                             .num_workers = workers,
                                                             .in_order = in_order,
                                                             .shard = {.rank = rank, .world_size = 2}});
            loader.start_epoch(0);
            bool last = false;
            while (loader.next()) {
              CHECK_FALSE(last);
              last = loader.is_last();
              seen += loader.batch_size();
              CHECK((!drop_last || loader.global_batch_size() == 4));
            }
            CHECK(last == (loader.position() > 0));
          }
          CHECK(seen == (drop_last ? size / 4 * 4 : size));
        }
      }
    }
  }
}

TEST_CASE("Loader: the state of a stream is taken every n batches, and a resume passes over those since", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    const auto stream = std::make_shared<Counting>(100);
    Loader loader(stream, {.batch_size = 2, .num_workers = workers, .snapshot_every_n_steps = 10});
    loader.start_epoch(0);
    for (int i = 0; i < 17; ++i) {
      REQUIRE(loader.next());
    }
    const State state = loader.state_dict();
    CHECK(state.at("stream_position").integer() == 20);
    CHECK(state.at("samples").integer() == 34);
    CHECK(stream->num_snapshots() <= 3);
    const auto resumed = std::make_shared<Counting>(100);
    Loader after(resumed, {.batch_size = 3, .num_workers = workers});
    after.load_state_dict(state);
    CHECK(danling::first_difference(after.state_dict(), state).empty());
    after.start_epoch(0);
    CHECK(drain(after) == counting(66, 34));
    CHECK(resumed->num_skipped() == 14);
    CHECK(resumed->num_read() == 66);
  }
}

TEST_CASE("Loader: keys of a stream's records do not depend on the layout", "[data]") {
  const auto keys_of = [](data::LoaderOptions options) {
    std::map<std::int64_t, data::RandomKey> out;
    for (options.shard.rank = 0; options.shard.rank < options.shard.world_size; ++options.shard.rank) {
      Loader loader(std::make_shared<Counting>(40), options);
      loader.start_epoch(3);
      while (loader.next()) {
        for (std::size_t i = 0; i < loader.batch().values.size(); ++i) {
          out[loader.batch().values[i]] = loader.batch().keys[i];
        }
      }
    }
    return out;
  };
  const auto one = keys_of({.batch_size = 1, .split = "train"});
  CHECK(one.size() == 40);
  const auto key = data::RandomKey::of(data::order_key(0, 3, "train/records"));
  CHECK((one.at(3007) == key.fold_in(7)));
  CHECK((keys_of({.batch_size = 7, .split = "train", .num_workers = 2}) == one));
  CHECK((keys_of({.batch_size = 3, .split = "train", .num_workers = 1, .shard = {.world_size = 3}}) == one));
}

/// Fails to save, or yields more than it was asked for.
class Faulty final : public Counting {
 public:
  Faulty() : Counting(20) {}
  State state_dict() const override {
    if (fails > 0 && --fails == 0) {
      throw std::runtime_error("no state today");
    }
    return Counting::state_dict();
  }
  std::function<Records()> read(std::int64_t num_samples, const data::BatchInfo& info) override {
    return Counting::read(num_samples + (too_many ? 1 : 0), info);
  }

  mutable std::atomic<int> fails = 0;
  std::atomic<bool> too_many = false;
};

TEST_CASE("Loader: a stream that cannot be saved or yields too much is an error of that batch", "[data]") {
  for (const std::int64_t workers : {0, 1}) {
    const auto stream = std::make_shared<Faulty>();
    Loader loader(stream, {.batch_size = 4, .split = "train", .num_workers = workers});
    stream->fails = 4;  // the first at the beginning, then behind each batch
    loader.start_epoch(0);
    REQUIRE(loader.next());
    REQUIRE(loader.next());
    CHECK_FALSE(loader.is_last());
    CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
          "[data.read] expected a batch, got: no state today; while reading records 8 to 11 of split 'train'");
    CHECK(drain(loader) == counting(12, 8));
    stream->too_many = true;
    loader.start_epoch(1);
    CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
          "[data.loader] expected at most 4 samples from the stream, got 5; while reading records 0 to 3 of split "
          "'train'");
  }
}

TEST_CASE("Loader: a stream's state that does not fit changes nothing, also while workers read ahead", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    Loader loader(std::make_shared<Counting>(20), {.batch_size = 4, .split = "train", .num_workers = workers});
    loader.start_epoch(0);
    REQUIRE(loader.next());
    State state = loader.state_dict();
    state["stream"]["at"] = -1;
    CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(state); }) ==
          "[test.stream] expected a place, got none (split 'train')");
    state["stream_position"] = 5;
    CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(state); }) ==
          "[data.loader] expected a stream that was saved at or before sample 4, got 5 (split 'train')");
    CHECK(loader.batch().values == counting(4));
    CHECK(drain(loader) == counting(16, 4));
  }
}

TEST_CASE("Loader: a gap in a stream that is too small for the processes is refused", "[data]") {
  Loader loader(std::make_shared<Counting>(20), {.batch_size = 2, .shard = {.world_size = 2}});
  State state = loader.state_dict();
  state["epoch"] = 0;
  state["delivered"] = State::List{State(1), State(4)};
  CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(state); }) ==
        "[data.loader] expected a state in which every gap has samples for 2 processes, got a smaller gap; resume with "
        "fewer processes");
}

}  // namespace loader_streams_test

}  // namespace
