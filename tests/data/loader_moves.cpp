// Moved loaders: epochs, workers and visits that go with them, and what is left behind.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <danling/data/loader_visit.hpp>

#include <support/error.hpp>

#include "loader_kinds.hpp"

namespace {

namespace loader_moves_test {

using namespace loader_test;
using danling_test::error_of;

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
        "[data.loader] expected a visit in progress, got one that has ended: something else used the loader");
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

}  // namespace loader_moves_test

}  // namespace
