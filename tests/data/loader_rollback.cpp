// States of loaders in the middle of an epoch: going back to them, and what workers and streams must not change.
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <ATen/ops/zeros.h>

#include <danling/data/loader_visit.hpp>

#include <support/error.hpp>

#include "loader_kinds.hpp"

namespace {

namespace loader_rollback_test {

using namespace loader_test;
using danling_test::error_of;

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
  std::optional<Number> next() {
    const auto value = at.item<std::int64_t>();
    if (value == 30) {
      return std::nullopt;
    }
    at += 1;
    return Number{value};
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

TEST_CASE("Loader: visits one after another, with nothing read between them, go back to the same place", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    for (int kind = 0; kind < num_kinds; ++kind) {
      CAPTURE(workers, kind);
      const data::LoaderOptions options{.batch_size = 3, .split = "train"};
      const Batches expected = undisturbed(kind, options)[1];
      Walker walker(kind, options, workers, true);
      Loader& loader = walker.loader();
      loader.start_epoch(1);
      REQUIRE(loader.next());
      const State state = loader.state_dict();
      for (int times = 0; times < 3; ++times) {
        data::LoaderVisit visit(loader, 0, true);
        REQUIRE(visit.next());
        visit.end();
        CHECK(danling::first_difference(loader.state_dict(), state) == "");
      }
      CHECK(rest_of(loader) == Batches(expected.begin() + 1, expected.end()));
    }
  }
}

}  // namespace loader_rollback_test

}  // namespace
