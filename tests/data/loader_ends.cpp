// Ends of epochs: states that were saved there, what drop_last leaves out, and the pass that follows.
#include <memory>
#include <utility>

#include "loader_kinds.hpp"

namespace {

namespace loader_ends_test {

using namespace loader_test;

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

}  // namespace loader_ends_test

}  // namespace
