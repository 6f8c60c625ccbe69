#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/arange.h>

#include <danling/data/length_buckets.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/tensor_dataset.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_info_test {

using namespace loader_test;
using Loader = data::Loader<Records>;
using danling_test::error_of;

data::RandomKey key_of(std::uint64_t seed, std::int64_t epoch, const char* of) {
  return data::RandomKey::of(data::order_key(seed, epoch, of));
}

TEST_CASE("Loader: every batch says what it is, on each rank", "[data]") {
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    Loader loader(std::make_shared<Computed>(23),
                  {.batch_size = 3, .seed = 8, .split = "train", .shard = {.rank = rank, .world_size = 2}});
    CHECK(loader.length() == 4);
    CHECK(loader.num_samples() == 23);
    std::int64_t global_step = 0;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      loader.start_epoch(epoch);
      for (std::int64_t i = 0; loader.next(); ++i, ++global_step) {
        const data::BatchInfo& info = loader.batch().info;
        CHECK(info.indices == loader.batch().values);
        CHECK(info.split == "train");
        CHECK(info.epoch == epoch);
        CHECK(info.batch_idx == i);
        CHECK(info.global_step == global_step);
        CHECK(info.shard_id == rank);
        CHECK(info.num_padding == 0);
        // 18 samples in three full global batches, then five: three for rank 0, two for rank 1.
        CHECK(info.position == i * 6 + rank * 3);
        CHECK(info.global_size == (i < 3 ? 6 : 5));
        CHECK(loader.global_batch_size() == info.global_size);
        CHECK(loader.batch_size() == (i < 3 || rank == 0 ? 3 : 2));
        CHECK((info.epoch_key == key_of(8, epoch, "train/records")));
        CHECK((info.batch_key == key_of(8, epoch, "train/batches").fold_in(static_cast<std::uint64_t>(info.position))));
        CHECK(info.sample_keys.empty());
        const data::Metadata metadata = loader.metadata(1);
        CHECK(metadata.index == info.indices[1]);
        CHECK(metadata.epoch == epoch);
        CHECK(metadata.batch_idx == i);
        CHECK(metadata.global_step == global_step);
        CHECK(metadata.shard_id == rank);
        CHECK((metadata.rng_key == info.key(1)));
        CHECK(metadata.source_info.string() == "record " + std::to_string(info.indices[1]));
        CHECK(error_of<danling::DataError>([&] { loader.metadata(3 + i); }) ==
              danling::detail::concat("[data.loader] expected a sample in [0, ", info.size(), "), got ", 3 + i));
      }
    }
    CHECK(loader.global_step() == 8);
    CHECK(error_of<danling::StateError>([&] { loader.info(); }) ==
          "[data.loader] expected a current batch, got none: call next() first");
  }
}

TEST_CASE("Loader: padding gives every rank as many samples, from the beginning of the order", "[data]") {
  Numbers last;
  std::int64_t padding = 0;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    Loader loader(std::make_shared<Computed>(13),
                  {.batch_size = 2, .shard = {.rank = rank, .world_size = 4, .padding = true}});
    CHECK(loader.length() == 2);
    loader.start_epoch(0);
    REQUIRE(loader.next());
    CHECK(loader.num_padding() == 0);
    REQUIRE(loader.next());
    CHECK(loader.batch_size() == 2);
    CHECK(loader.global_batch_size() == 5);
    padding += loader.num_padding();
    last.insert(last.end(), loader.batch().values.begin(), loader.batch().values.end());
    CHECK(loader.is_last());
  }
  CHECK(last == Numbers{8, 9, 10, 11, 12, 0, 1, 2});
  CHECK(padding == 3);
  // More processes than records: one sample each, and the order is gone through again and again.
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    Loader loader(std::make_shared<Computed>(3),
                  {.batch_size = 2, .shard = {.rank = rank, .world_size = 8, .padding = true}});
    loader.start_epoch(0);
    REQUIRE(loader.next());
    CHECK(loader.batch().values == Numbers{rank % 3});
    CHECK(loader.num_padding() == (rank < 3 ? 0 : 1));
    CHECK(loader.is_last());
  }
}

TEST_CASE("Loader: without padding some ranks may have no last batch", "[data]") {
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    Loader loader(std::make_shared<Computed>(8), {.batch_size = 2, .shard = {.rank = rank, .world_size = 3}});
    CHECK(loader.length() == (rank < 2 ? 2 : 1));
    loader.start_epoch(0);
    REQUIRE(loader.next());
    CHECK(loader.is_last() == (rank == 2));
    CHECK(loader.next() == (rank < 2));
  }
}

TEST_CASE("Loader: a record that an epoch has twice has two keys", "[data]") {
  /// 0, 1, 0, 1, ...
  class Twice final : public data::Sampler {
   public:
    std::int64_t size() const override { return 8; }
    void set_epoch(std::int64_t) override {}
    void fill(std::int64_t position, std::span<std::int64_t> indices) const override {
      for (auto& index : indices) {
        index = position++ % 2;
      }
    }
    bool repeats() const override { return true; }
    State state_dict() const override { return State(State::Map()); }
    void load_state_dict(const State&) override {}
  };
  Loader loader(std::make_shared<Computed>(2), {.batch_size = 3, .seed = 5, .sampler = std::make_shared<Twice>()});
  loader.start_epoch(1);
  std::uint64_t position = 0;
  while (loader.next()) {
    for (std::size_t i = 0; i < loader.batch().values.size(); ++i, ++position) {
      CHECK((loader.batch().keys[i] == key_of(5, 1, "/records").fold_in(position % 2).fold_in(position)));
    }
  }
  CHECK(position == 8);
}

TEST_CASE("Loader: the seed of a loaded state decides what random transforms draw", "[data]") {
  Loader saved(std::make_shared<Computed>(10), {.batch_size = 2, .seed = 1, .split = "train"});
  saved.start_epoch(0);
  REQUIRE(saved.next());
  Loader loader(std::make_shared<Computed>(10), {.batch_size = 2, .seed = 2, .split = "train"});
  loader.load_state_dict(saved.state_dict());
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.start_epoch(epoch);
    REQUIRE(loader.next());
    CHECK((loader.info().epoch_key == key_of(1, epoch, "train/records")));
  }
}

TEST_CASE("Loader: resuming reads nothing that it does not deliver", "[data]") {
  std::atomic<std::int64_t> reads = 0;
  const auto dataset = std::make_shared<Computed>(
      1000, [&](std::span<const std::int64_t> indices) { reads += static_cast<std::int64_t>(indices.size()); });
  Loader loader(dataset, {.batch_size = 10, .shuffle = true});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  State state = loader.state_dict();
  CHECK(state.map().size() == 7);
  CHECK(state.at("sampler").map().size() < 10);  // a handful of integers
  state["samples"] = 990;
  reads = 0;
  loader.load_state_dict(state);
  loader.start_epoch(0);
  CHECK(drain(loader).size() == 10);
  CHECK(reads == 10);
}

TEST_CASE("Loader: a batch in page-locked memory where there is an accelerator, else as it is", "[data]") {
  for (const std::int64_t workers : {0, 1}) {
    data::Loader<danling::Batch> loader(std::make_shared<data::TensorDataset>(at::arange(8)),
                                        {.batch_size = 4, .num_workers = workers, .pin_memory = true});
    loader.start_epoch(0);
    REQUIRE(loader.next());
    CHECK(loader.batch().input.is_pinned() == (at::accelerator::deviceCount() > 0));
    CHECK(loader.batch().info.indices == counting(4));
  }
}

/// 0, 1, 2, ... in batches of 4, 3, 4, 3, ... of four.
class Cycle final : public data::BatchSampler {
 public:
  explicit Cycle(std::int64_t size) : size_(size) {}
  std::optional<std::int64_t> size() const override { return size_; }
  void set_epoch(std::int64_t) override { at_ = 0; }
  std::int64_t next(const data::BatchShape& shape, std::span<std::int64_t> indices) override {
    const std::int64_t wanted = std::max<std::int64_t>(shape.global_size() - (short_ ? 1 : 0), 1);
    short_ = !short_;
    const std::int64_t count = std::min(wanted, size_ - at_);
    for (std::int64_t i = 0; i < count; ++i) {
      indices[static_cast<std::size_t>(i)] = at_++;
    }
    return count;
  }
  State state_dict() const override {
    State state;
    state["at"] = at_;
    return state;
  }
  void load_state_dict(const State& state) override { at_ = state.at("at").integer(); }

 private:
  std::int64_t size_;
  std::int64_t at_ = 0;
  bool short_ = false;
};

TEST_CASE("Loader: batches of a batch sampler, for one process and shared by two", "[data]") {
  Loader one(std::make_shared<Computed>(12), {.batch_size = 4, .batch_sampler = std::make_shared<Cycle>(12)});
  CHECK(one.num_samples() == 12);
  CHECK(one.length() == std::nullopt);
  one.start_epoch(0);
  std::vector<Numbers> seen;
  std::vector<bool> last;
  while (one.next()) {
    CHECK(one.info().position == one.batch().values.front());
    seen.push_back(one.batch().values);
    last.push_back(one.is_last());
  }
  CHECK(seen == std::vector<Numbers>{{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9, 10}, {11}});
  CHECK(last == std::vector<bool>{false, false, false, true});
  for (const bool padding : {false, true}) {
    std::vector<Numbers> ranks[2];
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      Loader loader(std::make_shared<Computed>(12), {.batch_size = 2,
                                                     .batch_sampler = std::make_shared<Cycle>(12),
                                                     .num_workers = 2,
                                                     .shard = {rank, 2, padding}});
      loader.start_epoch(0);
      while (loader.next()) {
        ranks[rank].push_back(loader.batch().values);
      }
    }
    CHECK(ranks[0] == std::vector<Numbers>{{0, 1}, {4, 5}, {7, 8}, {11}});
    CHECK(ranks[1] ==
          (padding ? std::vector<Numbers>{{2, 3}, {6, 4}, {9, 10}, {11}} : std::vector<Numbers>{{2, 3}, {6}, {9, 10}}));
  }
}

TEST_CASE("Loader: batches of a batch sampler that were planned and not delivered come after a resume", "[data]") {
  for (const std::int64_t workers : {0, 1, 3}) {
    for (const std::int64_t other : {0, 2}) {
      for (const std::int64_t batch_size : {2, 4, 7}) {
        for (std::int64_t stop = 0; stop < 8; ++stop) {
          Loader before(std::make_shared<Computed>(27),
                        {.batch_size = 4, .batch_sampler = std::make_shared<Cycle>(27), .num_workers = workers});
          before.start_epoch(1);
          Numbers seen;
          for (std::int64_t i = 0; i < stop && before.next(); ++i) {
            seen.insert(seen.end(), before.batch().values.begin(), before.batch().values.end());
          }
          Loader after(std::make_shared<Computed>(27),
                       {.batch_size = batch_size, .batch_sampler = std::make_shared<Cycle>(27), .num_workers = other});
          const State state = before.state_dict();
          after.load_state_dict(state);
          CHECK(danling::first_difference(after.state_dict(), state).empty());
          after.start_epoch(1);
          CHECK(after.samples() == static_cast<std::int64_t>(seen.size()));
          for (const Numbers& part : {drain(before), drain(after)}) {
            Numbers all = seen;
            all.insert(all.end(), part.begin(), part.end());
            REQUIRE(all == counting(27));
          }
        }
      }
    }
  }
}

TEST_CASE("Loader: records of similar length go on in the middle of an epoch, also out of order", "[data]") {
  for (const bool in_order : {true, false}) {
    const auto loader_of = [&](std::int64_t batch_size, bool ordered) {
      Numbers lengths;
      for (std::int64_t i = 0; i < 200; ++i) {
        lengths.push_back(1 + i * i % 97);
      }
      return std::make_unique<Loader>(
          std::make_shared<Computed>(200,
                                     [](std::span<const std::int64_t> indices) {
                                       std::this_thread::sleep_for(
                                           std::chrono::microseconds(indices[0] % 3 == 0 ? 500 : 10));
                                     }),
          data::LoaderOptions{
              .batch_size = batch_size,
              .batch_sampler = std::make_shared<data::LengthBuckets>(
                  lengths, data::LengthBucketsOptions{.num_buckets = 5, .shuffle = true, .split = "train"}),
              .num_workers = 3,
              .in_order = ordered});
    };
    const auto whole = loader_of(8, true);
    whole->start_epoch(2);
    const Numbers expected = drain(*whole);
    CHECK(static_cast<std::int64_t>(expected.size()) == 200);
    for (const std::int64_t batch_size : {8, 5}) {
      const auto before = loader_of(8, in_order);
      before->start_epoch(2);
      Numbers seen;
      for (int i = 0; i < 9; ++i) {
        REQUIRE(before->next());
        seen.insert(seen.end(), before->batch().values.begin(), before->batch().values.end());
      }
      const auto after = loader_of(batch_size, in_order);
      after->load_state_dict(before->state_dict());
      after->start_epoch(2);
      const Numbers rest = drain(*after);
      seen.insert(seen.end(), rest.begin(), rest.end());
      if (in_order && batch_size == 8) {
        CHECK(seen == expected);
      }
      std::sort(seen.begin(), seen.end());
      CHECK(seen == counting(200));
    }
  }
}

TEST_CASE("Loader: what a batch sampler cannot be combined with is refused by name", "[data]") {
  const auto groups = std::make_shared<Cycle>(12);
  const auto error = [](data::LoaderOptions options) {
    return error_of<danling::ConfigError>([&] { Loader(std::make_shared<Computed>(12), options); });
  };
  CHECK(error({.shuffle = true, .batch_sampler = groups}) ==
        "[data.loader] expected a batch sampler alone, got shuffle too");
  CHECK(error({.batch_sampler = groups, .in_order = false, .shard = {.world_size = 2}}) ==
        "[data.loader] expected in_order: true for a batch sampler of several processes, got false");
  Loader loader(std::make_shared<Computed>(12), {.split = "train", .batch_sampler = groups});
  Loader order(std::make_shared<Computed>(12), {.split = "train"});
  CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(order.state_dict()); }) ==
        "[data.loader] expected the state of a batch sampler, got that of a dataset (split 'train')");
  State state = loader.state_dict();
  state["pending"] = State::List{State(at::arange(20))};
  CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(state); }) ==
        "[data.loader] expected records in [0, 12), got 12 (split 'train')");
}

}  // namespace loader_info_test

}  // namespace
