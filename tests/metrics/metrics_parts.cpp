// AverageMeters, StreamMetrics and MultiTaskMetrics whose batches are computed in parts: equal bits for any number
// of ranks.
#include <cstdio>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ops/full.h>

#include <danling/metrics/average_meters.hpp>
#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

#include "exact_numbers.hpp"
#include "meter_parts.hpp"

namespace meter_parts_test {

using danling::AverageMeters;
using danling::Group;
using danling::State;
using danling_test::check_ranks;
using danling_test::run_ranks;
using exact_numbers::Shards;
using exact_numbers::shards_of;

TEST_CASE("AverageMeters: meters of some steps and ranks only, one that is reset, and the merged states", "[metrics]") {
  constexpr int shards = 4;
  const auto steps = draw_steps(9, 40, shards);
  // `rare` on odd steps, `third` on the third shard only.
  const auto step_of = [&](AverageMeters& meters, int step, Shards own) {
    for (int shard = own.begin; shard < own.end; ++shard) {
      const Part& part = steps[static_cast<std::size_t>(step)][static_cast<std::size_t>(shard)];
      meters.begin_batch(step);
      meters["all"].update(part.value, part.n);
      if (step % 2 == 1) {
        meters["rare"].update(part.value, part.n + 1);
      }
      if (shard == 2) {
        meters["third"].update(part.value);
      }
    }
  };
  const auto bits = [](const AverageMeters& meters) {
    std::string text;
    for (const char* name : {"all", "rare", "third"}) {
      const AverageMeter& meter = meters.at(name);
      for (const double number : {meter.avg(), meter.sum(), meter.bat()}) {
        char digits[40];
        std::snprintf(digits, sizeof digits, "%a ", number);
        text += digits;
      }
      text += concat(meter.count(), " ", meter.n(), "\n");
    }
    return text;
  };
  AverageMeters whole;
  for (int step = 0; step < 40; ++step) {
    step_of(whole, step, {0, shards});
  }
  const std::string expected = bits(whole);
  for (const int size : {2, 3, 4}) {
    const auto texts = run_ranks(size, [&](const Group& group) {
      const Shards own = shards_of(group.rank(), size, shards);
      AverageMeters meters;
      for (int step = 0; step < 40; ++step) {
        step_of(meters, step, own);
        if (step % 10 == 4) {
          meters.synchronize(group);
        }
      }
      meters.synchronize(group);
      const std::string got = bits(meters);
      if (group.rank() == 1) {
        meters.reset();
      }
      meters.synchronize(group);
      expect(meters.at("all").count() < whole.at("all").count(), "a reset of one rank to show");
      return got;
    });
    check_ranks(texts, expected);
  }
  std::vector<State> states;
  for (int shard = 0; shard < shards; ++shard) {
    AverageMeters meters;
    for (int step = 0; step < 40; ++step) {
      step_of(meters, step, {shard, shard + 1});
    }
    states.push_back(danling::clone(meters.state_dict()));
  }
  AverageMeters merged;
  merged.load_state_dict(AverageMeters::merge_states(states));
  CHECK(bits(merged) == expected);
}

danling::MetricFunc mean_of_row() {
  return {.name = "mean", .preds_targets = true, .compute = [](const danling::MetricState& s) {
            return danling::MetricValue(s.preds().mean());
          }};
}

TEST_CASE("StreamMetrics and MultiTaskMetrics: parts, ranks and merged states agree to the bit", "[metrics]") {
  constexpr int shards = 4;
  const auto steps = draw_steps(31, 20, shards);
  const auto make = [] {
    auto tasks =
        std::make_unique<danling::MultiTaskMetrics>(danling::MultiTaskOptions{.aggregate = danling::Aggregate::micro});
    tasks->add("stream",
               std::make_shared<danling::StreamMetrics>(std::vector<danling::StreamMetrics::Entry>{mean_of_row()}));
    tasks->add("one", mean_of_row());
    return tasks;
  };
  const auto run = [&](danling::MultiTaskMetrics& metrics, Shards own) {
    for (int step = 0; step < 20; ++step) {
      for (int shard = own.begin; shard < own.end; ++shard) {
        if (shard > own.begin) {
          metrics.continue_batch();
        }
        const Part& part = steps[static_cast<std::size_t>(step)][static_cast<std::size_t>(shard)];
        const at::Tensor rows = at::full({part.n + 1}, part.value, at::kDouble);
        metrics.update({{"stream", rows, rows}, {"one", rows, rows}});
      }
    }
  };
  const auto bits = [](const danling::MultiTaskMetrics& metrics) {
    std::string text;
    for (const auto& result : {metrics.average(), metrics.batch()}) {
      for (const auto& entry : result) {
        char digits[40];
        std::snprintf(digits, sizeof digits, "%a ", *std::get<danling::Result>(entry.value).number("mean"));
        text += digits;
      }
    }
    return text;
  };
  const auto whole = make();
  run(*whole, {0, shards});
  for (const int size : {2, 3, 4}) {
    const auto texts = run_ranks(size, [&](const Group& group) {
      const auto metrics = make();
      run(*metrics, shards_of(group.rank(), size, shards));
      metrics->synchronize(group);
      return bits(*metrics);
    });
    check_ranks(texts, bits(*whole));
  }
  std::vector<State> states;
  for (int shard = 0; shard < shards; ++shard) {
    const auto metrics = make();
    run(*metrics, {shard, shard + 1});
    states.push_back(danling::clone(metrics->state_dict()));
  }
  const auto merged = make();
  merged->load_state_dict(merged->merge_states(states));
  CHECK(bits(*merged) == bits(*whole));
  states.back()["more"] = 1;
  CHECK(danling_test::error_of<danling::StateError>([&] { merged->merge_states(states); }) ==
        "[multi_task_metrics.merge_states] expected tasks [stream, one], got [stream, one, more]");
  danling::StreamMetrics other({{"other", mean_of_row()}});
  const std::vector<State> strangers = {other.state_dict()};
  CHECK(danling_test::error_of<danling::StateError>([&] {
          danling::StreamMetrics({mean_of_row()}).merge_states(strangers);
        }) == "[stream_metrics.merge_states] expected metrics [mean], got ['other']");
}

/// A user's class without support for ranks and parts.
class PlainMetrics : public danling::MetricsBase {
 public:
  void reset() override {}
  danling::Result value() const override { return {}; }
  danling::Result batch() const override { return {}; }
  danling::Result average() const override { return {}; }
  danling::Result n() const override { return {}; }
  danling::Result count() const override { return {}; }
  void synchronize(const Group&) override {}
  State state_dict() const override { return {}; }
  void load_state_dict(const State&) override {}
};

TEST_CASE("MetricsBase: a class that cannot merge states says so by name", "[metrics]") {
  PlainMetrics metrics;
  metrics.begin_batch(0);
  metrics.continue_batch();
  CHECK(danling_test::error_of<danling::StateError>([&] { metrics.merge_states({}); }) ==
        "[metrics.merge_states] expected metrics that can merge the states of several ranks, got "
        "meter_parts_test::PlainMetrics, which does not override merge_states; resume with the number of processes "
        "that saved the run");
}

}  // namespace meter_parts_test
