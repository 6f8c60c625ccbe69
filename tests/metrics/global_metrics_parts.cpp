// GlobalMetrics whose batches are computed in parts: the same bits for any number of ranks.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>

#include <metrics/batch_rows.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

#include "exact_numbers.hpp"

namespace global_parts_test {

namespace m = danling::metrics;
using danling::GlobalMetrics;
using danling::Group;
using danling::MetricEntry;
using danling::MetricFunc;
using danling::MetricState;
using danling::RunningSums;
using danling::State;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using exact_numbers::Draw;
using exact_numbers::same;
using exact_numbers::Shards;
using exact_numbers::shards_of;

/// The rows of one shard of a step.
struct Rows {
  at::Tensor preds;
  at::Tensor targets;
};

constexpr int kShards = 4;
constexpr int kSteps = 25;

/// Steps of shards of 0 to 6 rows.
class Data {
 public:
  using Make = Rows (*)(Draw& draw, std::int64_t rows);
  Data(std::uint32_t seed, Make make, int shards = kShards) {
    Draw draw(seed, 9, 3, 24);
    for (int step = 0; step < kSteps; ++step) {
      auto& parts = steps_.emplace_back();
      for (int shard = 0; shard < shards; ++shard) {
        parts.push_back(make(draw, step == 3 && shard == 1 ? 0 : 1 + draw.weight(5)));
      }
    }
  }
  const Rows& at(int step, int shard) const {
    return steps_[static_cast<std::size_t>(step)][static_cast<std::size_t>(shard)];
  }
  /// All rows in the order of steps and shards.
  Rows all() const {
    std::vector<at::Tensor> preds;
    std::vector<at::Tensor> targets;
    for (const auto& parts : steps_) {
      for (const Rows& rows : parts) {
        preds.push_back(rows.preds);
        targets.push_back(rows.targets);
      }
    }
    return {at::cat(preds), at::cat(targets)};
  }

 private:
  std::vector<std::vector<Rows>> steps_;
};

at::Tensor drawn(Draw& draw, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape, at::kFloat);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = static_cast<float>(draw());
  }
  return out;
}

at::Tensor labels(Draw& draw, std::int64_t rows, std::int64_t classes) {
  at::Tensor out = at::empty({rows}, at::kLong);
  for (std::int64_t i = 0; i < rows; ++i) {
    out.mutable_data_ptr<std::int64_t>()[i] = draw.weight(classes - 1);
  }
  return out;
}

Rows numbers(Draw& draw, std::int64_t rows) { return {drawn(draw, {rows}), drawn(draw, {rows})}; }
Rows binary(Draw& draw, std::int64_t rows) { return {drawn(draw, {rows}).sigmoid(), labels(draw, rows, 2)}; }
Rows classes(Draw& draw, std::int64_t rows) { return {drawn(draw, {rows, 5}).softmax(1), labels(draw, rows, 5)}; }
Rows words(Draw& draw, std::int64_t rows) { return {drawn(draw, {rows, 40}), labels(draw, rows, 40)}; }

// Changes when rows change places.
MetricFunc in_places() {
  return {.name = "places", .preds_targets = true, .compute = [](const MetricState& s) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < s.preds().size(0); ++i) {
              sum = sum * 0.9 + static_cast<double>(s.preds().const_data_ptr<float>()[i]);
            }
            return danling::MetricValue(sum);
          }};
}

danling::RunningSumsPtr sums_of(bool merged) {
  RunningSums sums{.key = merged ? "merged" : "added", .of_batch = [](const at::Tensor& preds, const at::Tensor&) {
                     return preds.to(at::kDouble).sum() / 3.0;
                   }};
  if (merged) {
    sums.merge = [](at::Tensor& total, const at::Tensor& more) { total.mul_(0.5).add_(more); };
  }
  return std::make_shared<RunningSums>(sums);
}

MetricFunc value_of(const char* name, const danling::RunningSumsPtr& sums) {
  return {.name = name, .sums = {sums}, .compute = [sums](const MetricState& s) { return s.sums(sums); }};
}

struct Suite {
  const char* name;
  Data::Make make;
  std::vector<MetricEntry> (*metrics)();
};

const std::array kSuites = {
    Suite{"regression", numbers,
          [] {
            return std::vector<MetricEntry>{m::mae(),
                                            m::mse(),
                                            m::rmse(),
                                            m::mape(),
                                            m::r2_score(),
                                            m::explained_variance(),
                                            m::pearson(),
                                            m::concordance(),
                                            m::spearman(),
                                            m::kendall(),
                                            in_places(),
                                            value_of("added", sums_of(false)),
                                            value_of("merged", sums_of(true))};
          }},
    Suite{"moments alone", numbers, [] { return std::vector<MetricEntry>{m::mse(), m::pearson(), m::r2_score()}; }},
    Suite{"binary", binary,
          [] {
            return std::vector<MetricEntry>{
                m::binary_auroc(),    m::binary_auprc(),      m::binary_accuracy(), m::binary_f1_score(),
                m::binary_log_loss(), m::binary_hinge_loss(), m::binary_mcc(),      m::binary_calibration_error()};
          }},
    Suite{"classes", classes,
          [] {
            return std::vector<MetricEntry>{m::multiclass_auroc(5),         m::multiclass_auprc(5),
                                            m::multiclass_accuracy(5),      m::multiclass_f1_score(5),
                                            m::multiclass_cohen_kappa(5),   m::multiclass_confusion_matrix(5),
                                            m::multiclass_log_loss(5),      m::multiclass_hinge_loss(5),
                                            m::multiclass_jaccard_index(5), m::multiclass_calibration_error(5)};
          }},
    Suite{"words", words, [] { return std::vector<MetricEntry>{m::perplexity()}; }},
};

std::string bits(const danling::Result& result) {
  std::string text;
  for (const auto& [name, value] : result) {
    std::vector<double> numbers;
    if (const auto* number = std::get_if<double>(&value)) {
      numbers = {*number};
    } else if (const auto* array = std::get_if<danling::Result::Array>(&value)) {
      numbers = array->values;
    } else {
      numbers = std::get<std::vector<double>>(value);
    }
    text += name + ":";
    for (const double number : numbers) {
      char digits[40];
      std::snprintf(digits, sizeof digits, " %a", number);
      text += std::isnan(number) ? " nan" : digits;
    }
    text += "\n";
  }
  return text;
}

std::string read(const GlobalMetrics& metrics) {
  return bits(metrics.average()) + bits(metrics.batch()) + bits(metrics.count()) + bits(metrics.n());
}

danling::GlobalMetricsOptions as_given() {
  return {.preprocess = [](const at::Tensor& preds, const at::Tensor& targets) { return std::pair(preds, targets); }};
}

void feed(GlobalMetrics& metrics, const Data& data, int step, Shards own, bool numbered) {
  for (int shard = own.begin; shard < own.end; ++shard) {
    if (numbered) {
      metrics.begin_batch(step);
    } else if (shard > own.begin) {
      metrics.continue_batch();
    }
    metrics.update(data.at(step, shard).preds, data.at(step, shard).targets);
  }
}

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

TEST_CASE("BatchRows: equal batches share an entry; parts, later batches and joins keep all rows", "[metrics]") {
  danling::detail::BatchRows batches;
  for (std::int64_t batch = 0; batch < 1000; ++batch) {
    batches.add(batch, 8);
  }
  CHECK(batches.runs().size() <= 2);
  CHECK(batches.rows() == 8000);
  CHECK(batches.last() == 999);
  batches.add(999, 3);
  CHECK(batches.rows() == 8003);
  CHECK(batches.after(997).numbers() == std::vector<std::int64_t>{998, 1, 8, 999, 1, 11});
  danling::detail::BatchRows copy;
  REQUIRE(copy.read(batches.tensor()));
  CHECK(copy.numbers() == batches.numbers());
  danling::detail::BatchRows other;
  other.add(999, 1);
  other.add(1005, 2);
  CHECK(danling::detail::joined(batches, other).after(998).numbers() ==
        std::vector<std::int64_t>{999, 1, 12, 1005, 1, 2});
  batches.append(other.after(999));
  CHECK(batches.rows() == 8005);
  CHECK(batches.last() == 1005);
  for (const std::vector<std::int64_t>& wrong :
       {std::vector<std::int64_t>{0, 1}, {0, 0, 5}, {0, 2, 5, 1, 1, 5}, {0, 1, -1}, {-2, 1, 1}}) {
    CHECK(!copy.read(wrong));
  }
}

}  // namespace global_parts_test
