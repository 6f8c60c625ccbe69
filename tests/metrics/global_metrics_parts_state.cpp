// States of GlobalMetrics whose batches are computed in parts: merged, shared among other ranks, refused.
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

#include "exact_numbers.hpp"
#include "global_parts.hpp"

namespace global_parts_test {

using danling::Group;
using danling::State;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using exact_numbers::shards_of;

TEST_CASE("GlobalMetrics: the merged state of ranks reads the same, and each rank's own state resumes to the bit",
          "[metrics]") {
  constexpr int shards = 8;
  for (const Suite& suite : kSuites) {
    INFO(suite.name);
    const Data data(41, suite.make, shards);
    const auto run = [&](GlobalMetrics& metrics, int from, int to, Shards own) {
      for (int step = from; step < to; ++step) {
        feed(metrics, data, step, own, true);
      }
    };
    GlobalMetrics half(suite.metrics(), as_given());
    run(half, 0, 13, {0, shards});
    const std::string expected = read(half);
    run(half, 13, kSteps, {0, shards});
    for (const int ranks : {1, 2, 3, 8}) {
      std::vector<State> states;
      for (int rank = 0; rank < ranks; ++rank) {
        GlobalMetrics metrics(suite.metrics(), as_given());
        run(metrics, 0, 13, shards_of(rank, ranks, shards));
        states.push_back(danling::clone(metrics.state_dict()));
      }
      GlobalMetrics merged(suite.metrics(), as_given());
      const State state = merged.merge_states(states);
      merged.load_state_dict(state);
      CHECK(read(merged) == expected);
      // With the parts of one process, it goes on to the bit.
      run(merged, 13, kSteps, {0, shards});
      CHECK(read(merged) == read(half));
    }
  }
}

TEST_CASE("GlobalMetrics: a merged state on one rank, others reset, goes on with other ranks", "[metrics]") {
  const Data data(47, numbers);
  const auto metrics_of = [] { return std::vector<MetricEntry>{in_places(), m::spearman(), m::mae()}; };
  std::vector<State> states;
  for (int rank = 0; rank < 3; ++rank) {
    GlobalMetrics metrics(metrics_of(), as_given());
    for (int step = 0; step < 9; ++step) {
      feed(metrics, data, step, shards_of(rank, 3, kShards), true);
    }
    states.push_back(danling::clone(metrics.state_dict()));
  }
  const Rows all = data.all();
  const auto texts = run_ranks(2, [&](const Group& group) {
    GlobalMetrics metrics(metrics_of(), as_given());
    if (group.rank() == 0) {
      metrics.load_state_dict(metrics.merge_states(states));
    }
    for (int step = 9; step < kSteps; ++step) {
      feed(metrics, data, step, shards_of(group.rank(), 2, kShards), true);
    }
    metrics.synchronize(group);
    expect(at::equal(metrics.preds(), all.preds), "all rows in the order of steps and shards");
    return bits(metrics.n());
  });
  check_ranks(texts, texts.front());
  CHECK(!texts.front().starts_with("error: "));
}

TEST_CASE("GlobalMetrics: shares of a merged state go on with other ranks as if these had always been", "[metrics]") {
  for (const Suite& suite : kSuites) {
    INFO(suite.name);
    const Data data(53, suite.make);
    // The last shard has no data until step 9.
    const auto run = [&](GlobalMetrics& metrics, int from, int to, Shards own) {
      for (int step = from; step < to; ++step) {
        for (int shard = own.begin; shard < own.end; ++shard) {
          metrics.begin_batch(step);
          if (shard < kShards - 1 || step >= 9) {
            metrics.update(data.at(step, shard).preds, data.at(step, shard).targets);
          }
        }
      }
    };
    GlobalMetrics whole(suite.metrics(), as_given());
    run(whole, 0, 9, {0, kShards});
    const std::string middle = read(whole);
    run(whole, 9, kSteps, {0, kShards});
    const std::string expected = middle + read(whole);
    for (const int before : {1, 2, 3, 4}) {
      std::vector<State> states;
      for (int rank = 0; rank < before; ++rank) {
        GlobalMetrics metrics(suite.metrics(), as_given());
        run(metrics, 0, 9, shards_of(rank, before, kShards));
        states.push_back(danling::clone(metrics.state_dict()));
      }
      const auto texts = run_ranks(before == 3 ? 2 : 3, [&](const Group& group) {
        const Shards own = shards_of(group.rank(), group.size(), kShards);
        GlobalMetrics metrics(suite.metrics(), as_given());
        const State merged = metrics.merge_states(states);
        if (const auto share = metrics.share_of_state(merged, own.begin, own.end)) {
          metrics.load_state_dict(*share);
        }
        metrics.synchronize(group);
        const std::string out = read(metrics);
        run(metrics, 9, kSteps, own);
        metrics.synchronize(group);
        return out + read(metrics);
      });
      check_ranks(texts, expected);
    }
  }
}

TEST_CASE("GlobalMetrics: a state whose updates were counted goes on with batches of lower numbers", "[metrics]") {
  const Data data(59, kSuites[0].make);
  const auto update = [&](GlobalMetrics& metrics, int step, int shard) {
    metrics.update(data.at(step, shard).preds, data.at(step, shard).targets);
  };
  GlobalMetrics first(kSuites[0].metrics(), as_given()), whole(kSuites[0].metrics(), as_given());
  for (int step = 0; step < 6; ++step) {  // two updates in each of three batches
    update(first, step, 0);
    update(whole, step, 0);
  }
  const State state = danling::clone(first.state_dict());
  whole.begin_batch(6);
  update(whole, 6, 0);
  whole.continue_batch();
  update(whole, 6, 1);
  const auto texts = run_ranks(2, [&](const Group& group) {
    GlobalMetrics metrics(kSuites[0].metrics(), as_given());
    if (group.rank() == 0) {
      metrics.load_state_dict(state);
    }
    metrics.begin_batch(3);
    update(metrics, 6, group.rank());
    metrics.synchronize(group);
    return read(metrics);
  });
  check_ranks(texts, read(whole));
}

TEST_CASE("GlobalMetrics: states and numbers of batches that do not fit are refused", "[metrics]") {
  GlobalMetrics metrics({in_places()}, as_given());
  const at::Tensor rows = at::zeros({2});
  metrics.begin_batch(4);
  metrics.update(rows, rows);
  CHECK(error_of<danling::MetricError>([&] { metrics.begin_batch(3); }) ==
        "[global_metrics.begin_batch] expected a number of at least 4, got 3; call reset() between two passes");
  const State state = danling::clone(metrics.state_dict());
  State wrong = danling::clone(state);
  wrong["batches"] = at::zeros({1, 3}, at::kLong);
  CHECK(error_of<danling::StateError>([&] { metrics.load_state_dict(wrong); }) ==
        "[global_metrics.load_state_dict] expected batches that cover the 2 predictions and end with number 4, got "
        "others");
  wrong = danling::clone(state);
  wrong["batch_index"] = -3;
  CHECK(error_of<danling::StateError>([&] { metrics.load_state_dict(wrong); }) ==
        "[global_metrics.load_state_dict] expected a batch_index of at least 0, got -3");
  State::Map older;
  for (const auto& entry : state.map()) {
    if (entry.key.string() != "batches" && entry.key.string() != "batch_index") {
      older.set(entry.key, entry.value);
    }
  }
  metrics.load_state_dict(State(older));
  CHECK(metrics.preds().size(0) == 2);
  const std::vector<State> two = {State(older), state};
  CHECK(error_of<danling::StateError>([&] { metrics.merge_states(two); }) ==
        "[global_metrics.merge_states] expected states with batch numbers, got one of an older version");
  GlobalMetrics wide({in_places()}, as_given());
  wide.update(at::zeros({1, 7}), at::zeros({1}));
  const std::vector<State> mixed = {state, wide.state_dict()};
  CHECK(error_of<danling::StateError>([&] { metrics.merge_states(mixed); }) ==
        "[global_metrics.merge_states] expected predictions of one form, Float [*, 7], got Float [2]");
}

}  // namespace global_parts_test
