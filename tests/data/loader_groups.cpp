// Batch samplers resumed with other numbers of processes, and samplers that do not fit the dataset.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <danling/data/length_buckets.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/subset_sampler.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_groups_test {

using namespace loader_test;
using danling_test::error_of;
using Loader = data::Loader<Records>;

struct Run {
  Numbers lengths;
  data::LengthBucketsOptions options;
  bool drop_last = false;
  std::int64_t largest = 0;  // global batch
  Numbers seen;
  State state;
};

/// All ranks of one layout deliver up to `steps` batches; says whether the epoch ended.
bool go_on(Run& run, std::int64_t world_size, std::int64_t batch_size, std::int64_t workers, std::int64_t steps) {
  std::vector<std::unique_ptr<Loader>> ranks;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<Loader>(
        std::make_shared<Computed>(std::int64_t(run.lengths.size())),
        data::LoaderOptions{.batch_size = batch_size,
                            .drop_last = run.drop_last,
                            .batch_sampler = std::make_shared<data::LengthBuckets>(run.lengths, run.options),
                            .num_workers = workers,
                            .shard = {rank, world_size}}));
    if (!run.state.is_null()) {
      ranks.back()->load_state_dict(run.state);
    }
    ranks.back()->start_epoch(0);
  }
  run.largest = std::max(run.largest, world_size * batch_size);
  bool all = true;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::int64_t samples = 0;
    std::int64_t global = 0;
    bool any = false;
    const bool all_before = all;
    for (const auto& rank : ranks) {
      const bool more = rank->next();
      REQUIRE((!more || all_before));  // who had no batch has none later: only the last one may not be for all
      all = all && more;
      any = any || more;
      if (more) {
        REQUIRE((global == 0 || global == rank->global_batch_size()));
        global = rank->global_batch_size();
        samples += rank->batch_size();
        std::int64_t longest = 0;
        for (const std::int64_t record : rank->batch().values) {
          run.seen.push_back(record);
          longest = std::max(longest, run.lengths[std::size_t(record)]);
        }
        REQUIRE(rank->batch_size() <= batch_size);
        REQUIRE((!run.options.max_tokens || longest * rank->batch_size() <= *run.options.max_tokens));
      }
    }
    REQUIRE(samples == global);
    if (!any) {
      return true;
    }
  }
  run.state = ranks.front()->state_dict();
  return false;
}

TEST_CASE("Loader: batches of a batch sampler stay in step on any number of processes that goes on", "[data]") {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    Run run;
    run.drop_last = round % 3 == 2;
    run.options.num_buckets = 1 + std::int64_t(random() % 4);
    run.options.shuffle = random() % 2 == 0;
    run.lengths.resize(40 + random() % 80);
    std::generate(run.lengths.begin(), run.lengths.end(), [&] { return std::int64_t(1 + random() % 20); });
    if (round % 2 == 0) {
      run.options.max_tokens = 20 + std::int64_t(random() % 60);
    }
    for (bool ended = false; !ended;) {
      ended = go_on(run, 1 + std::int64_t(random() % 5), 1 + std::int64_t(random() % 7), random() % 3 == 0 ? 2 : 0,
                    std::int64_t(random() % 5));
    }
    std::sort(run.seen.begin(), run.seen.end());
    REQUIRE(std::adjacent_find(run.seen.begin(), run.seen.end()) == run.seen.end());
    const auto missing = std::int64_t(run.lengths.size() - run.seen.size());
    REQUIRE(missing < (run.drop_last ? run.largest : 1));
  }
}

TEST_CASE("Loader: a batch planned for one process is shared by four without a step that some have not", "[data]") {
  Run run;
  run.lengths.assign(60, 7);
  run.options.num_buckets = 1;
  CHECK_FALSE(go_on(run, 1, 10, 2, 2));
  CHECK(go_on(run, 4, 2, 0, 100));  // 10 records are 8 and 2, which 4 processes cannot share
  std::sort(run.seen.begin(), run.seen.end());
  CHECK(run.seen == counting(60));
}

TEST_CASE("Loader: records of a sampler that the dataset does not have are named", "[data]") {
  const auto dataset = std::make_shared<Computed>(10);
  Loader loader(dataset, {.batch_size = 2, .sampler = std::make_shared<data::SubsetSampler>(Numbers{3, 1000})});
  loader.start_epoch(0);
  CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
        "[data.loader] expected records in [0, 10) from the sampler, got record 1000");
  Loader groups(dataset, {.batch_size = 6, .batch_sampler = std::make_shared<data::LengthBuckets>(Numbers(12, 1))});
  groups.start_epoch(0);
  CHECK(groups.next());
  CHECK(error_of<danling::DataError>([&] { groups.next(); }) ==
        "[data.loader] expected records in [0, 10) from the batch sampler, got record 10");
}

TEST_CASE("Loader: what a batch sampler takes depends on its size, not on the batch size", "[data]") {
  Loader loader(
      std::make_shared<Computed>(10),
      {.batch_size = std::int64_t{1} << 40, .batch_sampler = std::make_shared<data::LengthBuckets>(Numbers(10, 1))});
  loader.start_epoch(0);
  CHECK(drain(loader) == counting(10));
}

}  // namespace loader_groups_test

}  // namespace
