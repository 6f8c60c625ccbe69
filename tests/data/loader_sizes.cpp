// Sources that give another number of samples than they were asked for, and batches that are not full, on all ranks.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/core/grad_mode.h>

#include <danling/data/loader.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_sizes_test {

using namespace loader_test;
using danling_test::error_of;
using Loader = data::Loader<Records>;

/// 0, 1, ..., 19, never over a multiple of 5 in one batch.
class Files final : public data::Stream<Records> {
 public:
  std::optional<Records> next(std::int64_t num_samples) override {
    const std::int64_t count = std::min({num_samples, 5 - at_ % 5, 20 - at_});
    at_ += std::max<std::int64_t>(count, 0);
    return count > 0 ? std::optional(Records{counting(count, at_ - count), {}, {}}) : std::nullopt;
  }
  void reset(std::int64_t) override { at_ = 0; }
  State state_dict() const override {
    State state;
    state["at"] = at_;
    return state;
  }
  void load_state_dict(const State& state) override { at_ = state.at("at").integer(); }

 protected:
  std::int64_t at_ = 0;
};

/// Makes its batches itself, so that only the loader can see how many samples they have.
class FilesWithJobs final : public data::Stream<Records> {
 public:
  std::optional<Records> next(std::int64_t num_samples) override { return files_.next(num_samples); }
  std::function<Records()> read(std::int64_t num_samples, const data::BatchInfo&) override {
    auto batch = files_.next(num_samples);
    return batch ? std::function<Records()>([batch] { return *batch; }) : std::function<Records()>();
  }
  void reset(std::int64_t epoch) override { files_.reset(epoch); }
  State state_dict() const override { return files_.state_dict(); }
  void load_state_dict(const State& state) override { files_.load_state_dict(state); }

 private:
  Files files_;
};

/// Leaves out the records that are multiples of seven.
class Sparse final : public data::Dataset<Records> {
 public:
  std::int64_t size() const override { return 20; }
  Records get_batch(std::span<const std::int64_t> indices) override {
    Records out;
    std::copy_if(indices.begin(), indices.end(), std::back_inserter(out.values), [](auto i) { return i % 7 != 6; });
    return out;
  }
};

TEST_CASE("Loader: a stream that goes on behind a batch that is not full is refused", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    for (const bool drop_last : {false, true}) {
      Loader loader(std::make_shared<Files>(), {.batch_size = 4, .drop_last = drop_last, .num_workers = workers});
      loader.start_epoch(0);
      CHECK(loader.next());
      for (int again = 0; again < 3; ++again) {
        CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
              "[data.stream] expected a batch of 4 samples, or fewer at the end of the stream, got 1 before its end; "
              "while reading records 4 to 7");
      }
      CHECK(loader.samples() == 4);
    }
    Loader fits(std::make_shared<Files>(), {.batch_size = 5, .num_workers = workers});
    fits.start_epoch(0);
    CHECK(drain(fits) == counting(20));
  }
}

TEST_CASE("Loader: a stream whose jobs are not full before its end is refused, by all ranks", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    Loader loader(std::make_shared<FilesWithJobs>(), {.batch_size = 4, .num_workers = workers});
    loader.start_epoch(0);
    CHECK(loader.next());
    CHECK(loader.next());
    CHECK(loader.batch_size() == 1);
    for (int again = 0; again < 20; ++again) {  // behind the end too
      CHECK(
          error_of<danling::DataError>([&] { loader.next(); })
              .starts_with("[data.loader] expected the end of the stream after sample 5, where it returned fewer than "
                           "requested, got samples up to "));
    }
    CHECK(loader.samples() == 5);
    for (const std::int64_t rank : {0, 1}) {
      Loader part(std::make_shared<FilesWithJobs>(), {.batch_size = 4, .num_workers = workers, .shard = {rank, 2}});
      part.start_epoch(0);
      CHECK(error_of<danling::DataError>([&] { drain(part); }) ==
            (rank == 0 ? "[data.stream] expected a batch of 4 samples, or fewer at the end of the stream, got 1 before "
                         "its end; while reading records 0 to 3"
                       : "[data.loader] expected the end of the stream after sample 5, where it returned fewer than "
                         "requested, got samples up to 13"));
    }
  }
}

TEST_CASE("Loader: a batch of a dataset that has another number of samples names its records", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    Loader loader(std::make_shared<Sparse>(), {.batch_size = 4, .split = "train", .num_workers = workers});
    loader.start_epoch(0);
    CHECK(loader.next());
    CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
          "[data.loader] expected a batch of 4 samples from the dataset, got 3; while reading records 4, 5, 6, 7 of "
          "split 'train'");
    CHECK(loader.samples() == 4);
  }
}

TEST_CASE("Loader: out of order, the batch that is not full comes last on every rank", "[data]") {
  using std::chrono_literals::operator""ms;
  for (int round = 0; round < 5; ++round) {
    for (const std::int64_t rank : {0, 1}) {
      const auto slow = [&](std::span<const std::int64_t> indices) {
        std::this_thread::sleep_for(indices.front() < 36 ? 5ms : 0ms);
      };
      Loader loader(std::make_shared<Computed>(38, slow),
                    {.batch_size = 4, .num_workers = 4, .in_order = false, .shard = {rank, 2}});
      loader.start_epoch(0);
      Numbers sizes;
      while (loader.next()) {
        sizes.push_back(loader.global_batch_size());
      }
      CHECK(sizes == Numbers{8, 8, 8, 8, 6});
    }
  }
}

TEST_CASE("Loader: no gradients are recorded while reading, in whatever thread", "[data]") {
  for (const std::int64_t workers : {0, 1}) {
    std::vector<bool> enabled;
    const auto look = [&](std::span<const std::int64_t>) { enabled.push_back(c10::GradMode::is_enabled()); };
    Loader loader(std::make_shared<Computed>(4, look), {.batch_size = 2, .num_workers = workers});
    loader.start_epoch(0);
    CHECK(drain(loader) == counting(4));
    CHECK(enabled == std::vector<bool>{false, false});
    CHECK(c10::GradMode::is_enabled());
  }
}

TEST_CASE("Loader: a stream's batch that no size justifies is refused", "[data]") {
  CHECK(error_of<danling::ConfigError>([] {
          Loader loader(std::make_shared<Counting>(3), {.batch_size = (std::int64_t{1} << 24) + 1});
        }) == "[data.loader] expected batch_size of at most 16777216 for a stream, got 16777217");
}

TEST_CASE("Loader: the batch type is that of the source", "[data]") {
  data::Loader of_dataset(std::make_shared<Computed>(4), {.batch_size = 2});
  STATIC_REQUIRE(std::same_as<decltype(of_dataset), Loader>);
  data::Loader of_stream(std::make_shared<Counting>(3));
  STATIC_REQUIRE(std::same_as<decltype(of_stream), Loader>);
  of_stream.start_epoch(0);
  CHECK(drain(of_stream) == counting(3));
}

}  // namespace loader_sizes_test

}  // namespace
