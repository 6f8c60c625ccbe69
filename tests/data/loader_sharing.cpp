// One stream or batch sampler in two loaders: refused while one of them is in an epoch, free before and behind.
#include <memory>
#include <string>

#include <danling/data/length_buckets.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/loader_visit.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_sharing_test {

using namespace loader_test;
using Loader = data::Loader<Records>;
using danling_test::error_of;

template <class Call>
std::string refusal(const Call& call) {
  return error_of<danling::StateError>(call);
}

std::string refusal_of(const std::string& kind) {
  return "[data.loader] expected a " + kind +
         " that no other loader is reading, got one in use (split 'train'); create one for each loader, or read the "
         "other loader to its end or destroy it first";
}

TEST_CASE("Loader: a stream that another loader is reading is refused, and nothing is lost", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    const auto stream = std::make_shared<Counting>(20);
    const data::LoaderOptions options{.batch_size = 4, .split = "train", .num_workers = workers};
    auto first = std::make_unique<Loader>(stream, options);
    Loader second(stream, options);
    first->start_epoch(0);
    REQUIRE(first->next());
    const State state = first->state_dict();
    CHECK(refusal([&] { second.start_epoch(0); }) == refusal_of("stream"));
    CHECK(refusal([&] { second.load_state_dict(state); }) == refusal_of("stream"));
    CHECK(refusal([&] { data::LoaderVisit(second, 0, true); }) == refusal_of("stream"));
    Loader moved = std::move(*first);  // takes the stream along
    CHECK(refusal([&] { second.start_epoch(0); }) == refusal_of("stream"));
    CHECK(drain(moved) == counting(16, 4));
    second.load_state_dict(state);
    CHECK(refusal([&] { moved.start_epoch(1); }) == refusal_of("stream"));
    second.start_epoch(0);
    CHECK(drain(second) == counting(16, 4));
    first = std::make_unique<Loader>(stream, options);
    first->start_epoch(1);
    REQUIRE(first->next());
    first = nullptr;
    moved.start_epoch(2);
    CHECK(drain(moved) == counting(20, 2000));
  }
}

TEST_CASE("Loader: a batch sampler that another loader is reading is refused, and nothing is lost", "[data]") {
  const auto buckets = std::make_shared<data::LengthBuckets>(Numbers(12, 3), data::LengthBucketsOptions{});
  const data::LoaderOptions options{.batch_size = 4, .split = "train", .batch_sampler = buckets};
  Loader first(std::make_shared<Computed>(12), options);
  Loader second(std::make_shared<Computed>(12), options);
  first.start_epoch(0);
  REQUIRE(first.next());
  CHECK(refusal([&] { second.start_epoch(1); }) == refusal_of("batch sampler"));
  CHECK(drain(first).size() == 8);
  second.start_epoch(1);
  CHECK(drain(second).size() == 12);
}

TEST_CASE("Loader: a stream is free behind a visit of a loader in no epoch, and behind a state that it refused",
          "[data]") {
  const auto stream = std::make_shared<Counting>(20);
  Loader first(stream, {.batch_size = 4});
  {
    data::LoaderVisit visit(first, 3, true);
    REQUIRE(visit.next());
  }
  Loader second(stream, {.batch_size = 4});
  second.start_epoch(0);
  REQUIRE(second.next());
  State wrong = second.state_dict();
  CHECK(drain(second) == counting(16, 4));
  wrong["stream"]["at"] = -1;
  CHECK(refusal([&] { first.load_state_dict(wrong); }) == "[test.stream] expected a place, got none");
  second.start_epoch(1);
  CHECK(drain(second) == counting(20, 1000));
}

}  // namespace loader_sharing_test

}  // namespace
