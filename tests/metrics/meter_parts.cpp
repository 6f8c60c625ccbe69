// Meters whose batches are computed in parts: the same bits for any number of ranks.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <danling/metrics/average_meters.hpp>
#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <metrics/exact_sum.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

#include "exact_numbers.hpp"

namespace meter_parts_test {

using danling::AverageMeter;
using danling::AverageMeters;
using danling::Group;
using danling::State;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::expect;
using danling_test::run_ranks;
using exact_numbers::Draw;
using exact_numbers::rounded;
using exact_numbers::same;
using exact_numbers::Shards;
using exact_numbers::shards_of;
using exact_numbers::Wide;
using exact_numbers::wide;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("ExactSum: the nearest float64 of sums over all magnitudes, in any order", "[metrics]") {
  Draw draw(3, 50, 50, 53);
  std::mt19937 order(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> numbers;
    Wide sum = 0;
    for (int i = 0; i < 40; ++i) {
      // Multiples of 2^-60, as `wide` needs them.
      const double number = std::ldexp(std::round(std::ldexp(draw(), 60)), -60);
      numbers.push_back(number);
      sum += wide(number);
    }
    std::shuffle(numbers.begin(), numbers.end(), order);
    danling::detail::ExactSum exact;
    for (const double number : numbers) {
      exact.add(number);
    }
    const auto [whole, rest] = exact.with_rest();
    CHECK(same(whole, rounded(sum)));
    CHECK(same(rest, rounded(sum - wide(whole))));
  }
  const auto sum_of = [](const std::vector<double>& numbers) {
    danling::detail::ExactSum exact;
    for (const double number : numbers) {
      exact.add(number);
    }
    return exact.rounded();
  };
  CHECK(same(sum_of({}), 0.0));
  CHECK(sum_of({1e308, 1.0, -1e308}) == 1.0);
  // A tie: 2^53 + 1 goes to the even 2^53, and the least more goes up.
  CHECK(sum_of({0x1p53, 1.0}) == 0x1p53);
  CHECK(sum_of({0x1p53, 1.0, 0x1p-1000}) == 0x1.0000000000001p53);
  CHECK(sum_of({0x1p53, 1.0, -0x1p-1000}) == 0x1p53);
  CHECK(sum_of({INFINITY, 1.0}) == INFINITY);
  CHECK(std::isnan(sum_of({INFINITY, -INFINITY})));
  CHECK(std::isnan(sum_of({nan, 1.0})));
}

/// One part of a batch.
struct Part {
  double value;
  std::int64_t n;
};

enum class Feed { numbers, scalars, elements, sums };
constexpr std::array kFeeds = {Feed::numbers, Feed::scalars, Feed::elements, Feed::sums};

void feed(AverageMeter& meter, const Part& part, Feed how) {
  switch (how) {
    case Feed::numbers:
      meter.update(part.value, part.n);
      break;
    case Feed::scalars:
      meter.update(at::scalar_tensor(part.value, at::kDouble), part.n);
      break;
    case Feed::elements:
      meter.update(at::tensor({part.value, -part.value}, at::kDouble), part.n);
      break;
    case Feed::sums:
      meter.add(part.value * static_cast<double>(part.n), part.n);
      break;
  }
}

/// Steps of shards with values over wide ranges, some without weight.
std::vector<std::vector<Part>> draw_steps(std::uint32_t seed, int steps, int shards) {
  // Multiples of 2^-60 below 2^8; with weights, those products are rounded.
  Draw draw(seed, 8, 8, 53);
  std::vector<std::vector<Part>> out;
  for (int step = 0; step < steps; ++step) {
    auto& parts = out.emplace_back();
    for (int shard = 0; shard < shards; ++shard) {
      parts.push_back({draw(), draw.weight(7)});
    }
  }
  return out;
}

/// What a meter of all parts reads, by integers.
struct Expected {
  double sum = 0.0;
  double avg = nan;
  double bat = nan;
  std::int64_t count = 0;
  std::int64_t n = 0;
};

Expected expected_of(const std::vector<std::vector<Part>>& steps, std::size_t done, Feed how) {
  Expected out;
  Wide sum = 0;
  for (std::size_t step = 0; step < done; ++step) {
    Wide batch = 0;
    int weighted = 0;
    double only = nan;
    out.n = 0;
    for (const Part& part : steps[step]) {
      const auto n = static_cast<double>(part.n);
      sum += wide(part.value * n);
      out.count += part.n;
      if (part.n > 0) {
        const double value = how == Feed::sums ? part.value * n / n : part.value;
        batch += wide(value * n);
        only = value;
        ++weighted;
        out.n += part.n;
      }
    }
    out.bat = weighted == 1 ? only : rounded(batch) / static_cast<double>(out.n);
  }
  out.sum = rounded(sum);
  out.avg = out.sum / static_cast<double>(out.count);
  return out;
}

double first_number(const at::Tensor& tensor) { return tensor.flatten()[0].item().toDouble(); }

void check_reads(const AverageMeter& meter, const Expected& expected, const std::string& where) {
  const auto number = [&](const char* what, double got, double right) {
    expect(same(got, right), concat(where, ": ", what, " ", right, ", got ", got));
  };
  number("sum", first_number(meter.sum_tensor()), expected.sum);
  number("average", first_number(meter.average_tensor()), expected.avg);
  number("batch", first_number(meter.batch_tensor()), expected.bat);
  expect(meter.count() == expected.count && meter.n() == expected.n, where + ": the weights");
}

constexpr int kSteps = 250;

TEST_CASE("AverageMeter: shards spread over any number of ranks give the bits of exact arithmetic", "[metrics]") {
  constexpr int shards = 4;
  for (const int size : {1, 2, 3, 4}) {
    const auto texts = run_ranks(size, [size](const Group& group) {
      std::uint32_t seed = 11;
      for (const Feed how : kFeeds) {
        for (const bool numbered : {false, true}) {
          const auto steps = draw_steps(++seed, kSteps, shards);
          AverageMeter meter;
          AverageMeter rarely;  // combined at the end only
          const Shards own = shards_of(group.rank(), size, shards);
          for (int step = 0; step < kSteps; ++step) {
            for (AverageMeter* each : {&meter, &rarely}) {
              for (int shard = own.begin; shard < own.end; ++shard) {
                if (numbered) {
                  each->begin_batch(step);
                } else if (shard > own.begin) {
                  each->continue_batch();
                }
                feed(*each, steps[static_cast<std::size_t>(step)][static_cast<std::size_t>(shard)], how);
              }
            }
            if (step % 100 == 49) {
              meter.synchronize(group);
              check_reads(meter, expected_of(steps, static_cast<std::size_t>(step) + 1, how), concat("step ", step));
            }
          }
          for (AverageMeter* each : {&meter, &rarely}) {
            each->synchronize(group);
            check_reads(*each, expected_of(steps, kSteps, how), "the end");
          }
        }
      }
      return std::string("done");
    });
    check_ranks(texts, "done");
  }
}

TEST_CASE("AverageMeter: without a number every rank's last batch counts, with one only the latest", "[metrics]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    const auto bat = [&](bool numbered) {
      AverageMeter meter;
      // Rank 2 has no part of the last batch.
      for (int step = 0; step < (group.rank() == 2 ? 1 : 2); ++step) {
        if (numbered) {
          meter.begin_batch(step);
        }
        meter.update(group.rank() + 10.0 * step, 2);
      }
      meter.synchronize(group);
      return concat(meter.bat(), " of ", meter.n(), " ", meter.sum());
    };
    return bat(false) + ", " + bat(true);
  });
  check_ranks(texts, "7.666666666666667 of 6 48.0, 10.5 of 4 48.0");
}

TEST_CASE("AverageMeter: the value of a single part is the batch's, whichever rank has it", "[metrics]") {
  // 0.1 * 3 / 3 is not 0.1.
  for (const int size : {1, 2}) {
    const auto texts = run_ranks(size, [size](const Group& group) {
      AverageMeter meter;
      for (int shard = shards_of(group.rank(), size, 2).begin; shard < shards_of(group.rank(), size, 2).end; ++shard) {
        meter.begin_batch(0);
        meter.update(shard == 1 ? 0.1 : nan, shard == 1 ? 3 : 0);
      }
      meter.synchronize(group);
      expect(meter.bat() == 0.1 && meter.n() == 3, concat("0.1, got ", meter.bat()));
      meter.begin_batch(1);
      meter.update(5.0, 0);
      meter.synchronize(group);
      expect(std::isnan(meter.bat()), "nan of a batch without weight");
      meter.begin_batch(2);
      meter.update(group.rank() == 0 ? nan : 1.0);
      meter.synchronize(group);
      expect(std::isnan(meter.bat()) && std::isnan(meter.avg()), "nan of a nan");
      return std::string("done");
    });
    check_ranks(texts, "done");
  }
}

TEST_CASE("AverageMeter: parts of a batch are one last value, and the next batch starts anew", "[metrics]") {
  for (const bool tensors : {false, true}) {
    AverageMeter meter;
    const auto update = [&](double value, std::int64_t n) {
      tensors ? meter.update(at::full({2}, value, at::kDouble), n) : meter.update(value, n);
    };
    const auto val = [&] { return first_number(meter.value_tensor()); };
    update(1.0, 1);
    meter.continue_batch();
    update(2.0, 3);
    CHECK(val() == 7.0 / 4);
    CHECK(meter.n() == 4);
    CHECK(first_number(meter.average_tensor()) == 7.0 / 4);
    AverageMeter copy = meter;
    meter.continue_batch();
    update(4.0, 4);
    CHECK(val() == 23.0 / 8);
    CHECK(first_number(copy.value_tensor()) == 7.0 / 4);
    update(5.0, 2);
    CHECK(val() == 5.0);
    CHECK(meter.n() == 2);
    update(6.0, 1);
    CHECK(val() == 6.0);
    meter.continue_batch();
    update(nan, 0);
    CHECK(val() == 6.0);
    CHECK(first_number(meter.average_tensor()) == 39.0 / 11);
    if (!tensors) {
      CHECK(meter.text(2) == "6.00 (3.55)");
    }
    const std::string refusal = danling_test::error_of<danling::MetricError>([&] { meter.begin_batch(-1); });
    CHECK(refusal == "[average_meter.begin_batch] expected a number of at least 0, got -1");
  }
}

TEST_CASE("AverageMeter: a state in the middle of a batch in parts resumes to the bit", "[metrics]") {
  for (const Feed how : kFeeds) {
    for (const bool numbered : {false, true}) {
      const auto steps = draw_steps(77, 30, 5);
      AverageMeter whole;
      AverageMeter resumed;
      for (int step = 0; step < 30; ++step) {
        for (int shard = 0; shard < 5; ++shard) {
          for (AverageMeter* meter : {&whole, &resumed}) {
            if (numbered) {
              meter->begin_batch(step);
            } else if (shard > 0) {
              meter->continue_batch();
            }
            feed(*meter, steps[static_cast<std::size_t>(step)][static_cast<std::size_t>(shard)], how);
          }
          AverageMeter loaded;
          loaded.load_state_dict(danling::clone(resumed.state_dict()));
          REQUIRE(danling::first_difference(loaded.state_dict(), whole.state_dict()) == "");
          resumed = loaded;
        }
        REQUIRE(same(first_number(resumed.value_tensor()), first_number(whole.value_tensor())));
        REQUIRE(same(first_number(resumed.sum_tensor()), first_number(whole.sum_tensor())));
      }
      check_reads(resumed, expected_of(steps, 30, how), "resumed");
    }
  }
}

TEST_CASE("AverageMeter: the merged state of any number of ranks reads what exact arithmetic does", "[metrics]") {
  constexpr int shards = 8;
  for (const Feed how : kFeeds) {
    const auto steps = draw_steps(123, kSteps, shards);
    for (const int ranks : {1, 2, 3, 4, 8}) {
      std::vector<State> states;
      for (int rank = 0; rank < ranks; ++rank) {
        AverageMeter meter;
        const Shards own = shards_of(rank, ranks, shards);
        for (int step = 0; step < kSteps; ++step) {
          for (int shard = own.begin; shard < own.end; ++shard) {
            meter.begin_batch(step);
            feed(meter, steps[static_cast<std::size_t>(step)][static_cast<std::size_t>(shard)], how);
          }
        }
        states.push_back(danling::clone(meter.state_dict()));
      }
      states.push_back(AverageMeter().state_dict());  // a rank without values
      AverageMeter merged;
      merged.load_state_dict(AverageMeter::merge_states(states));
      check_reads(merged, expected_of(steps, kSteps, how), concat("of ", ranks));
      // Of some first, and then of the others: the same.
      std::vector<State> late(states.begin() + 1, states.end());
      late = {AverageMeter::merge_states(late), states.front()};
      CHECK(danling::first_difference(AverageMeter::merge_states(late), AverageMeter::merge_states(states)) == "");
    }
  }
}

TEST_CASE("AverageMeter: states that do not fit together are refused", "[metrics]") {
  AverageMeter number;
  number.update(1.0);
  AverageMeter elements;
  elements.update(at::full({2}, 1.0));
  const std::vector<State> mixed = {number.state_dict(), elements.state_dict()};
  CHECK(danling_test::error_of<danling::StateError>([&] { AverageMeter::merge_states(mixed); }) ==
        "[average_meter.merge_states] expected states of a scalar alike, got one of a tensor of shape [2]");
  AverageMeter full;
  full.update(1.0, std::numeric_limits<std::int64_t>::max());
  const std::vector<State> many = {full.state_dict(), number.state_dict()};
  CHECK(danling_test::error_of<danling::StateError>([&] { AverageMeter::merge_states(many); }) ==
        "[average_meter.merge_states] expected counts of at most 9223372036854775807 together, got 1 after "
        "9223372036854775807");
  State bad = number.state_dict();
  bad["batch"]["sum"] = 1.0;
  bad["batch"]["compensation"] = 0.0;
  bad["batch"]["parts"] = 1;
  CHECK(danling_test::error_of<danling::StateError>([&] { number.load_state_dict(bad); }) ==
        "[average_meter.load_state_dict] expected a batch of at least 2 parts, got 1");
}

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

/// A user's class that has learned nothing of ranks and parts.
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
