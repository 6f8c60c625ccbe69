// The order of the records of tar shards: shuffled by seed and epoch, and resumed from states.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/datasets/tar_shards.hpp>

#include <support/error.hpp>
#include <support/tar.hpp>
#include <support/temp_dir.hpp>

#include "numbered_shards.hpp"

namespace tar_shards_test {
namespace {

using danling::State;
using danling_test::error_of;

TEST_CASE("tar_records: every order holds every record once, and depends on seed and epoch only", "[data]") {
  const Numbers numbers;
  REQUIRE(numbers.count == 13);
  data::TarRecords plain({numbers.pattern()});
  CHECK(drain(plain) == counted(13));
  CHECK_FALSE(plain.next());
  std::set<std::vector<std::int64_t>> orders;
  for (const std::int64_t buffer : {0, 2, 5, 100}) {
    for (const bool shuffle_shards : {false, true}) {
      const data::TarRecordsOptions options{.shuffle_shards = shuffle_shards, .shuffle_buffer = buffer, .seed = 3};
      data::TarRecords records({numbers.pattern()}, options);
      for (const std::int64_t epoch : {0, 1, 0}) {
        records.reset(epoch);
        const auto order = drain(records);
        orders.insert(order);
        auto sorted = order;
        std::sort(sorted.begin(), sorted.end());
        CHECK(sorted == counted(13));
        data::TarRecords again({numbers.pattern()}, options);
        again.reset(epoch);
        CHECK(drain(again) == order);
      }
    }
  }
  // Each combination that shuffles has an order of its own in both epochs; the plain one has one.
  CHECK(orders.size() == 1 + 2 * 7);
}

TEST_CASE("tar_records: shuffled shards come whole, in another order", "[data]") {
  const Numbers numbers;
  data::TarRecords records({numbers.pattern()}, {.shuffle_shards = true, .seed = 1});
  std::set<std::vector<fs::path>> orders;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    records.reset(epoch);
    std::vector<fs::path> order;
    while (const auto record = records.next()) {
      if (order.empty() || order.back() != record->shard()) {
        order.push_back(record->shard());
      }
    }
    CHECK(order.size() == 4);  // one of the five is empty
    orders.insert(order);
  }
  CHECK(orders.size() > 10);
}

TEST_CASE("tar_records: a state taken anywhere goes on with the same records, and skipping is reading", "[data]") {
  const Numbers numbers;
  for (const std::int64_t buffer : {0, 4, 100}) {
    const data::TarRecordsOptions options{.shuffle_shards = buffer != 0, .shuffle_buffer = buffer, .seed = 5};
    data::TarRecords whole({numbers.pattern()}, options);
    whole.reset(2);
    const auto expected = drain(whole);
    for (std::int64_t at = 0; at <= 13; ++at) {
      data::TarRecords before({numbers.pattern()}, options);
      before.reset(2);
      CHECK(before.skip(at) == at);
      const State state = before.state_dict();
      auto other = options;
      other.seed = 99;  // the state's seed and split are taken over
      other.split = "other";
      data::TarRecords after({numbers.pattern()}, other);
      after.load_state_dict(state);
      CHECK(danling::bitwise_equal(after.state_dict(), state));
      const std::vector<std::int64_t> rest(expected.begin() + at, expected.end());
      CHECK(drain(after) == rest);
      CHECK(drain(before) == rest);
      after.reset(3);
      before.reset(3);
      CHECK(drain(after) == drain(before));
    }
    whole.reset(2);
    CHECK(whole.skip(100) == 13);
  }
}

std::size_t num_descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

TEST_CASE("tar_records: a resumed shuffle buffer opens each shard once", "[data]") {
  const TempDir dir;
  for (int shard = 0; shard < 40; ++shard) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < 60; ++i) {
      members.emplace_back(concat(shard * 60 + i, ".cls"), concat(shard * 60 + i));
    }
    write_file(dir / concat("s", shard, ".tar"), tar_archive(members));
  }
  const std::vector<std::string> shards = {(dir.path() / "s{0..39}.tar").string()};
  const data::TarRecordsOptions options{.shuffle_shards = true, .shuffle_buffer = 2000, .seed = 1};
  State state;
  std::vector<std::int64_t> expected;
  {
    data::TarRecords records(shards, options);
    CHECK(records.skip(380) == 380);
    state = records.state_dict();
    expected = drain(records);
    CHECK(expected.size() == 2020);
  }
  const std::size_t before = num_descriptors();
  data::TarRecords resumed(shards, options);
  resumed.load_state_dict(state);
  CHECK(num_descriptors() <= before + 40);
  CHECK(drain(resumed) == expected);
  CHECK(num_descriptors() <= before + 40);
}

TEST_CASE("tar_records: a state of other shards or options is refused and changes nothing", "[data]") {
  const Numbers numbers;
  const data::TarRecordsOptions options{.shuffle_buffer = 3};
  data::TarRecords records({numbers.pattern()}, options);
  records.skip(6);
  const State state = records.state_dict();
  const auto text = [&](data::TarRecords& other, const State& changed) {
    const State before = other.state_dict();
    const std::string what = error_of<danling::StateError>([&] { other.load_state_dict(changed); });
    CHECK(danling::bitwise_equal(before, other.state_dict()));
    return what;
  };
  data::TarRecords fewer({(numbers.dir.path() / "s{0..3}.tar").string()}, options);
  CHECK(text(fewer, state) == "[data.tar_shards] expected the state of these 4 shards, got one of others");
  data::TarRecords plain({numbers.pattern()});
  CHECK(text(plain, state) == "[data.tar_shards] expected a state with a shuffle_buffer of 0, got 3");
  data::TarRecords shuffled({numbers.pattern()}, {.shuffle_shards = true, .shuffle_buffer = 3});
  CHECK(text(shuffled, state) == "[data.tar_shards] expected a state with shuffle_shards true, got false");
  CHECK(text(records, State()) == "[data.tar_shards] expected the state of a stream of shards, got another kind");
  State far = state;
  far["shard"] = 9;
  CHECK(text(records, far).starts_with("[data.tar_shards] expected a position in 5 shards, got shard 9, offset "));
  far = state;
  far["buffer"] = at::tensor({9, 0}, at::kLong).view({1, 2});
  CHECK(text(records, far) == "[data.tar_shards] expected a place in 5 shards, got shard 9, offset 0");
  // The same shards elsewhere are the same.
  const TempDir elsewhere;
  for (int i = 0; i < 5; ++i) {
    fs::copy_file(numbers.dir / concat("s", i, ".tar"), elsewhere / concat("s", i, ".tar"));
  }
  data::TarRecords moved({(elsewhere.path() / "s{0..4}.tar").string()}, options);
  moved.load_state_dict(state);
  CHECK(drain(moved) == drain(records));
}

}  // namespace
}  // namespace tar_shards_test
