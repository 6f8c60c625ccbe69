// GlobalMetrics whose batches are computed in parts: the same bits for any number of ranks.
#include <string>
#include <variant>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <danling/metrics/global_metrics.hpp>

#include <support/ranks.hpp>

#include "exact_numbers.hpp"
#include "global_parts.hpp"

namespace global_parts_test {

using danling::Group;
using danling::State;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::expect;
using danling_test::run_ranks;
using exact_numbers::same;
using exact_numbers::shards_of;

TEST_CASE("GlobalMetrics: every metric of shards spread over any number of ranks has the same bits", "[metrics]") {
  for (const Suite& suite : kSuites) {
    INFO(suite.name);
    const Data data(17, suite.make);
    const Rows all = data.all();
    std::vector<std::string> first;
    // The reference has one shard on each rank.
    for (const int size : {4, 1, 2, 3}) {
      for (const bool numbered : {false, true}) {
        const auto texts = run_ranks(size, [&](const Group& group) {
          GlobalMetrics metrics(suite.metrics(), as_given());
          GlobalMetrics rarely(suite.metrics(), as_given());
          std::string out;
          for (int step = 0; step < kSteps; ++step) {
            for (GlobalMetrics* each : {&metrics, &rarely}) {
              feed(*each, data, step, shards_of(group.rank(), size, kShards), numbered);
            }
            if (step % 10 == 6) {
              metrics.synchronize(group);
              out += read(metrics);
            }
          }
          metrics.synchronize(group);
          rarely.synchronize(group);
          expect(read(metrics) == read(rarely), "the same whenever ranks were combined");
          if (metrics.preds().defined()) {
            expect(at::equal(metrics.preds(), all.preds) && at::equal(metrics.targets(), all.targets),
                   "the rows in the order of steps and shards");
          }
          expect(std::get<double>(metrics.count().begin()->value) == static_cast<double>(all.preds.size(0)),
                 "the number of rows");
          return out + read(metrics);
        });
        if (first.empty()) {
          first = {texts.front()};
          CHECK(!texts.front().starts_with("error: "));
        }
        check_ranks(texts, first.front());
      }
    }
  }
}

TEST_CASE("GlobalMetrics: sums are added by part over batches, then in the order of parts", "[metrics]") {
  // By plain loops over float64: the definition.
  const Data data(23, numbers);
  const auto of_shard = [&](int step, int shard) {
    double sum = 0.0;
    const at::Tensor preds = data.at(step, shard).preds;
    for (std::int64_t i = 0; i < preds.size(0); ++i) {
      // Numbers of 24 bits within 12 powers of two: the sum of a few is exact in any order.
      sum += static_cast<double>(preds.const_data_ptr<float>()[i]);
    }
    return sum / 3.0;
  };
  double added = 0.0;
  double merged = 0.0;
  double last_added = 0.0;
  double last_merged = 0.0;
  for (int shard = 0; shard < kShards; ++shard) {
    double by_shard_added = of_shard(0, shard);
    double by_shard_merged = by_shard_added;
    for (int step = 1; step < kSteps; ++step) {
      by_shard_added += of_shard(step, shard);
      by_shard_merged = by_shard_merged * 0.5 + of_shard(step, shard);
    }
    added = shard == 0 ? by_shard_added : added + by_shard_added;
    merged = shard == 0 ? by_shard_merged : merged * 0.5 + by_shard_merged;
    const double last = of_shard(kSteps - 1, shard);
    last_added = shard == 0 ? last : last_added + last;
    last_merged = shard == 0 ? last : last_merged * 0.5 + last;
  }
  for (const int size : {1, 2, 3, 4}) {
    const auto texts = run_ranks(size, [&](const Group& group) {
      GlobalMetrics metrics({value_of("added", sums_of(false)), value_of("merged", sums_of(true))}, as_given());
      for (int step = 0; step < kSteps; ++step) {
        feed(metrics, data, step, shards_of(group.rank(), size, kShards), true);
      }
      metrics.synchronize(group);
      const auto check = [](const danling::Result& result, const char* name, double right) {
        expect(same(*result.number(name), right), concat(name, " ", right, ", got ", *result.number(name)));
      };
      check(metrics.average(), "added", added);
      check(metrics.average(), "merged", merged);
      check(metrics.batch(), "added", last_added);
      check(metrics.batch(), "merged", last_merged);
      return std::string("done");
    });
    check_ranks(texts, "done");
  }
}

TEST_CASE("GlobalMetrics: ranks that end earlier, start later, miss parts or are reset keep the order", "[metrics]") {
  const Data data(29, numbers);
  // Shard 3 ends after ten steps, shard 2 begins at the fifth, shard 0 misses the seventh.
  const auto has = [](int step, int shard) {
    return !(shard == 3 && step >= 10) && !(shard == 2 && step < 5) && !(shard == 0 && step == 7);
  };
  const auto step_of = [&](GlobalMetrics& metrics, int step, Shards own) {
    for (int shard = own.begin; shard < own.end; ++shard) {
      metrics.begin_batch(step);
      if (has(step, shard)) {
        metrics.update(data.at(step, shard).preds, data.at(step, shard).targets);
      }
    }
  };
  std::vector<at::Tensor> rows;
  for (int step = 0; step < kSteps; ++step) {
    for (int shard = 0; shard < kShards; ++shard) {
      if (has(step, shard)) {
        rows.push_back(data.at(step, shard).preds);
      }
    }
  }
  std::string first;
  for (const int size : {4, 1, 2, 3}) {
    const auto texts = run_ranks(size, [&](const Group& group) {
      GlobalMetrics metrics(kSuites[0].metrics(), as_given());
      const Shards own = shards_of(group.rank(), size, kShards);
      std::string out;
      for (int step = 0; step < kSteps; ++step) {
        step_of(metrics, step, own);
        if (step % 4 == 3) {
          metrics.synchronize(group);
          out += read(metrics);
        }
      }
      metrics.synchronize(group);
      expect(at::equal(metrics.preds(), at::cat(rows)), "the rows in the order of steps and shards");
      out += read(metrics);
      if (group.rank() == 1) {
        const State saved = danling::clone(metrics.state_dict());
        metrics.reset();
        metrics.load_state_dict(saved);
      }
      metrics.synchronize(group);
      expect(at::equal(metrics.preds(), at::cat(rows)), "the same after a load on one rank");
      return out;
    });
    first = first.empty() ? texts.front() : first;
    CHECK(!texts.front().starts_with("error: "));
    check_ranks(texts, first);
  }
}

TEST_CASE("GlobalMetrics: batches without numbers are counted on each rank, and older ones are put in place",
          "[metrics]") {
  const auto row = [](int number) { return at::full({1}, number, at::kFloat); };
  const auto texts = run_ranks(2, [&](const Group& group) {
    GlobalMetrics metrics({in_places()}, as_given());
    const auto update = [&](int number) { metrics.update(row(number), row(number)); };
    // Rank 1 starts when rank 0 already has three batches.
    if (group.rank() == 0) {
      for (const int number : {0, 1, 2}) {
        update(number);
      }
    }
    metrics.synchronize(group);
    group.rank() == 0 ? update(3) : update(10);
    metrics.synchronize(group);
    expect(at::equal(metrics.preds(), at::cat({row(0), row(10), row(1), row(2), row(3)})), "the rows by batch");
    if (group.rank() == 1) {
      // A part of a batch that rank 0 already has.
      metrics.continue_batch();
      update(11);
      update(12);
    }
    metrics.synchronize(group);
    expect(at::equal(metrics.preds(), at::cat({row(0), row(10), row(11), row(1), row(12), row(2), row(3)})),
           "the part in its batch");
    expect(at::equal(metrics.targets(), metrics.preds()), "targets like predictions");
    return bits(metrics.n());
  });
  check_ranks(texts, "places: 0x1p+0\n");
}

}  // namespace global_parts_test
