// AverageMeter with batches that are computed in parts: the same bits for any number of ranks, and in states.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/full.h>

#include <danling/metrics/average_meter.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

#include "exact_numbers.hpp"
#include "meter_parts.hpp"

namespace meter_parts_test {

using danling::Group;
using danling::State;
using danling_test::check_ranks;
using danling_test::run_ranks;
using exact_numbers::Shards;
using exact_numbers::shards_of;

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
      // In two steps, some first and then the others: equal.
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

}  // namespace meter_parts_test
