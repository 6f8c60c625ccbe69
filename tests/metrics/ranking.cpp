#include <danling/metrics/functional/ranking.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <danling/core/error.hpp>

#include <metrics/functional/ranking.hpp>

#include <support/error.hpp>

namespace ranking_tests {

namespace m = danling::metrics;
using danling::MetricError;
using danling::MetricState;
using danling_test::error_of;
using m::Average;
using m::Task;
using m::detail::ScoreTask;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

at::Tensor scores_of(std::vector<double> values) { return at::tensor(values, at::kDouble); }
at::Tensor labels_of(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
double number(const at::Tensor& value) { return value.item().toDouble(); }
bool same(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-12) {
  return a.allclose(b, tolerance, tolerance, /*equal_nan=*/true);
}

// The share of ordered pairs, by comparing all of them.
double by_pairs(const at::Tensor& scores, const at::Tensor& labels) {
  const at::Tensor above = scores.index({labels.eq(1)}).unsqueeze(1);
  const at::Tensor below = scores.index({labels.eq(0)}).unsqueeze(0);
  return number((above.gt(below).to(at::kDouble) + above.eq(below).to(at::kDouble) * 0.5).mean());
}

TEST_CASE("auroc: the share of pairs in order, ties half", "[metrics]") {
  CHECK(number(m::auroc(scores_of({0.1, 0.4, 0.35, 0.8}), labels_of({0, 0, 1, 1}))) == 0.75);
  CHECK(number(m::auroc(scores_of({0.5, 0.5, 0.5}), labels_of({0, 1, 0}))) == 0.5);
  CHECK(number(m::auroc(scores_of({0.9, 0.1}), labels_of({0, 1}))) == 0.0);
  for (const std::int64_t size : {10, 700, 5000}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const at::Tensor labels = at::randint(0, 2, {size});
      labels[0].fill_(0);  // both classes
      labels[1].fill_(1);
      const at::Tensor fine = at::rand({size}, type);
      const at::Tensor coarse = fine.mul(20).floor().div(20);
      CHECK(std::abs(number(m::auroc(fine, labels)) - by_pairs(fine, labels)) < 1e-12);
      CHECK(std::abs(number(m::auroc(coarse, labels)) - by_pairs(coarse, labels)) < 1e-12);
    }
  }
}

TEST_CASE("auroc: scores of any sign, size and spread are ordered exactly", "[metrics]") {
  const ScoreTask task = {};
  const at::Tensor labels = at::randint(0, 2, {4000});
  const at::Tensor wide = at::randn({4000}, at::kDouble).mul(at::randn({4000}, at::kDouble).mul(100).exp());
  const at::Tensor close = at::rand({4000}, at::kDouble).mul(1e-13).add(0.5);  // the same in their first 33 bits
  const at::Tensor zeros = at::where(at::rand({4000}).gt(0.5), 0.0, -0.0).to(at::kDouble);
  for (const at::Tensor& scores : {wide, close, close.neg(), close.mul(wide.sign()), zeros}) {
    const at::Tensor rank = m::detail::rank_on_host(scores, labels, task);
    CHECK(std::abs(number(rank[m::detail::row_auroc][0]) - by_pairs(scores, labels)) < 1e-12);
    const at::Tensor narrow = scores.to(at::kFloat);
    CHECK(std::abs(number(m::detail::rank_on_host(narrow, labels, task)[m::detail::row_auroc][0]) -
                   by_pairs(narrow, labels)) < 1e-12);
  }
}

TEST_CASE("auroc: a million samples equal the formula over ranks", "[metrics]") {
  constexpr std::int64_t size = 1000000;
  const at::Tensor labels = at::randint(0, 2, {size});
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor scores = at::rand({size}, type).add(labels.mul(0.1)).div(1.1);
    const auto [sorted, order] = at::sort(scores.to(at::kDouble));
    const at::Tensor first = at::searchsorted(sorted, sorted);
    const at::Tensor last = at::searchsorted(sorted, sorted, false, /*right=*/true);
    const at::Tensor ranks = (first + last + 1).to(at::kDouble).div(2);
    const double positives = number(labels.sum());
    const double sum = number(ranks.mul(labels.gather(0, order)).sum());
    const double expected = (sum - positives * (positives + 1) / 2) / positives / (size - positives);
    CHECK(std::abs(number(m::auroc(scores, labels)) - expected) < 1e-12);
  }
}

TEST_CASE("auprc: the mean precision at the positives", "[metrics]") {
  // Precision 1/1, 2/3 at the two positives; scikit-learn's example gives the same.
  CHECK(std::abs(number(m::auprc(scores_of({0.1, 0.4, 0.35, 0.8}), labels_of({0, 0, 1, 1}))) - (1.0 + 2.0 / 3) / 2) <
        1e-15);
  CHECK(number(m::average_precision(scores_of({0.5, 0.5, 0.5, 0.5}), labels_of({0, 1, 0, 0}))) == 0.25);
}

TEST_CASE("ranking: data without positives, negatives, or anything", "[metrics]") {
  const at::Tensor scores = scores_of({0.2, 0.6});
  CHECK(number(m::auroc(scores, labels_of({1, 1}))) == 0.0);
  CHECK(number(m::auroc(scores, labels_of({0, 0}))) == 0.0);
  CHECK(number(m::auprc(scores, labels_of({1, 1}))) == 1.0);
  CHECK(number(m::auprc(scores, labels_of({0, 0}))) == 0.0);
  CHECK(std::isnan(number(m::auroc(scores, labels_of({-100, -100})))));
  CHECK(std::isnan(number(m::auprc(scores_of({}), labels_of({})))));
  CHECK(std::isnan(number(m::auroc(scores_of({0.2, nan_value, 0.3}), labels_of({0, 1, 1})))));
  CHECK(number(m::auroc(scores_of({0.2, nan_value, 0.3}), labels_of({0, -100, 1}))) == 1.0);

  const at::Tensor three = at::tensor({0.5, 0.2, 0.3, 0.1, 0.6, 0.3}, at::kDouble).view({2, 3});
  CHECK(same(m::auprc(three, labels_of({0, 1}), {.num_classes = 3, .average = Average::none}),
             scores_of({1.0, 1.0, nan_value})));
  CHECK(number(m::auprc(three, labels_of({0, 1}), {.num_classes = 3})) == 1.0);
  CHECK(std::abs(number(m::auroc(three, labels_of({0, 1}), {.num_classes = 3})) - 2.0 / 3) < 1e-15);
  // torchmetrics' own answer: (1 + 0 + 0) / 3
  CHECK(std::abs(number(m::auprc(three, labels_of({0, 0}), {.num_classes = 3})) - 1.0 / 3) < 1e-15);
  CHECK(number(m::auprc(three, labels_of({1, 1}), {.num_classes = 3})) == 1.0);
  // The third label has no data; the second no positives.
  const at::Tensor labels = at::tensor({1, 0, -100, 0, 0, -100}, at::kLong).view({2, 3});
  CHECK(same(m::auprc(three, labels, {.num_labels = 3, .average = Average::none}), scores_of({1.0, 0.0, nan_value})));
  CHECK(number(m::auprc(three, labels, {.num_labels = 3})) == 0.5);
  CHECK(number(m::auprc(three, labels, {.num_labels = 3, .average = Average::weighted})) == 1.0);
}

TEST_CASE("ranking: a nan score makes averages nan, not smaller", "[metrics]") {
  const at::Tensor scores = at::rand({6, 3}, at::kDouble);
  scores[2][1].fill_(nan_value);
  const at::Tensor targets = labels_of({0, 1, 2, 0, 1, 2});
  for (const Average average : {Average::macro, Average::weighted}) {
    CHECK(std::isnan(number(m::auroc(scores, targets, {.num_classes = 3, .average = average}))));
  }
  const at::Tensor each = m::auroc(scores, targets, {.num_classes = 3, .average = Average::none});
  CHECK(same(each.isnan().to(at::kDouble), scores_of({0, 1, 0})));
}

std::vector<ScoreTask> all_tasks() {
  return {{.task = Task::binary, .num = 1, .ignore_index = -100},
          {.task = Task::binary, .num = 1, .ignore_index = std::nullopt},
          {.task = Task::multiclass, .num = 4, .ignore_index = -100},
          {.task = Task::multiclass, .num = 5, .ignore_index = 0},
          {.task = Task::multilabel, .num = 3, .ignore_index = -100},
          {.task = Task::multilabel, .num = 3, .ignore_index = -100, .flat = true}};
}

std::pair<at::Tensor, at::Tensor> data_for(const ScoreTask& task, std::int64_t size, bool ties, bool ignores) {
  at::Tensor scores = task.task == Task::binary ? at::rand({size}) : at::rand({size, task.num});
  if (ties) {
    scores = scores.mul(10).floor().div(10);
  }
  at::Tensor targets = task.task == Task::multiclass ? at::randint(0, task.num, {size})
                       : task.task == Task::binary   ? at::randint(0, 2, {size})
                                                     : at::randint(0, 2, {size, task.num});
  if (ignores && task.ignore_index) {
    targets.masked_fill_(at::rand(targets.sizes()).lt(0.3), *task.ignore_index);
  }
  return {scores, targets};
}

TEST_CASE("ranking: the device's path equals the host's", "[metrics]") {
  for (const ScoreTask& task : all_tasks()) {
    for (const std::int64_t size : {0, 1, 2, 33, 800}) {
      for (const bool ties : {false, true}) {
        INFO(task.text() << ", " << size << " samples, ties " << ties);
        const auto [scores, targets] = data_for(task, size, ties, /*ignores=*/true);
        CHECK(same(m::detail::rank_on_device(scores, targets, task), m::detail::rank_on_host(scores, targets, task)));
        const at::Tensor limits = m::detail::even_thresholds(7);
        const at::Tensor bins = m::detail::bin_on_host(scores, targets, task, limits);
        CHECK(bins.equal(m::detail::bin_on_device(scores, targets, task, limits)));
        CHECK(same(m::detail::rank_bins_on_device(bins), m::detail::rank_bins_on_host(bins)));
      }
    }
  }
  // An ignored nan has no effect.
  const at::Tensor ignored = at::rand({50}, at::kDouble);
  ignored[7].fill_(nan_value);
  const at::Tensor some = at::randint(0, 2, {50});
  some[7].fill_(-100);
  const ScoreTask binary = {.ignore_index = -100};
  CHECK(same(m::detail::rank_on_device(ignored, some, binary), m::detail::rank_on_host(ignored, some, binary)));
  const at::Tensor broken = scores_of({0.1, nan_value, 0.3});
  const at::Tensor labels = labels_of({0, 1, 1});
  CHECK(m::detail::rank_on_device(broken, labels, {}).isnan().all().item().toBool());
  CHECK(m::detail::rank_on_host(broken, labels, {}).isnan().all().item().toBool());
}

TEST_CASE("ranking: binned counts add up over batches", "[metrics]") {
  const auto [scores, targets] = data_for({.task = Task::multiclass, .num = 4}, 300, /*ties=*/true, /*ignores=*/false);
  const danling::MetricFunc metric = m::multiclass_auroc(4, {.thresholds = 50});
  REQUIRE(metric.sums.size() == 1);
  CHECK_FALSE(metric.preds_targets);
  CHECK_FALSE(metric.sums[0]->merge);
  at::Tensor total = metric.sums[0]->of_batch(scores.narrow(0, 0, 0), targets.narrow(0, 0, 0));
  total += metric.sums[0]->of_batch(scores.narrow(0, 0, 120), targets.narrow(0, 0, 120));
  total += metric.sums[0]->of_batch(scores.narrow(0, 120, 180), targets.narrow(0, 120, 180));
  MetricState state;
  state.set(metric.sums[0], total);
  CHECK(metric.compute(state).number() == metric.compute(MetricState(scores, targets)).number());
  // Scores on the grid of the thresholds lose only ties between neighbours.
  const at::Tensor grid = at::randint(0, 51, {300}).to(at::kDouble).div(50);
  const at::Tensor labels = at::randint(0, 2, {300});
  const double binned = number(m::auprc(grid, labels, {.thresholds = 51}));
  CHECK(std::abs(binned - number(m::auprc(grid, labels))) < 0.02);
}

TEST_CASE("auroc: the standardized area up to a false positive rate", "[metrics]") {
  // scikit-learn 1.9: roc_auc_score(max_fpr=0.5) of its example is 0.6666666666666667.
  const at::Tensor scores = scores_of({0.1, 0.4, 0.35, 0.8});
  const at::Tensor labels = labels_of({0, 0, 1, 1});
  CHECK(std::abs(number(m::auroc(scores, labels, {.max_fpr = 0.5})) - 2.0 / 3) < 1e-12);
  CHECK(number(m::auroc(scores, labels, {.max_fpr = 1.0})) == 0.75);
  CHECK(number(m::auroc(scores, labels_of({1, 1, 1, 1}), {.max_fpr = 0.5})) == 0.0);
  CHECK(std::isnan(number(m::auroc(scores_of({}), labels_of({}), {.max_fpr = 0.5}))));
}

TEST_CASE("ranking: metrics of one state share the sort", "[metrics]") {
  const MetricState state(scores_of({0.1, 0.4, 0.35, 0.8}), labels_of({0, 0, 1, 1}));
  const auto auroc = m::binary_auroc();
  const auto auprc = m::binary_auprc();
  CHECK(auroc.compute(state).number() == 0.75);
  int made = 0;
  state.shared("ranks, " + ScoreTask{.ignore_index = -100}.text(), [&] {
    ++made;
    return at::Tensor();
  });
  CHECK(made == 0);
  CHECK(auprc.compute(state).number() == m::auprc(state.preds(), state.targets()).item().toDouble());
  CHECK(auroc.name == "auroc");
  CHECK(auprc.name == "auprc");
  CHECK(auroc.preds_targets);
  CHECK(auroc.higher_is_better == true);
}

TEST_CASE("ranking: work that is split over threads gives the same", "[metrics]") {
  const ScoreTask task = {.task = Task::multiclass, .num = 7, .ignore_index = -100};
  const auto [scores, targets] = data_for(task, 6000, /*ties=*/true, /*ignores=*/true);
  const at::Tensor one = m::detail::rank_on_host(scores, targets, task);
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  CHECK(one.equal(m::detail::rank_on_host(scores, targets, task)));
  at::set_num_threads(before);
}

TEST_CASE("ranking: what does not fit is told", "[metrics]") {
  CHECK(error_of<MetricError>([] { m::multiclass_auroc(3, {.average = Average::micro}); }) ==
        "[metrics.auroc] expected average macro, weighted or none for multiclass, got micro");
  CHECK(error_of<MetricError>([] { m::binary_auprc({.thresholds = 1}); }) ==
        "[metrics.auprc] expected at least 2 thresholds, got 1");
  CHECK(error_of<MetricError>([] { m::binary_auroc({.max_fpr = 0.0}); }) ==
        "[metrics.auroc] expected max_fpr in (0, 1], got 0.0");
  CHECK(error_of<MetricError>([] { m::auprc(scores_of({0.1}), labels_of({1}), {.max_fpr = 0.5}); }) ==
        "[metrics.auprc] expected max_fpr for binary AUROC only");
  CHECK(error_of<MetricError>([] { m::binary_auroc().compute(MetricState(at::rand({2, 2}), labels_of({0, 1}))); }) ==
        "[metrics.auroc] expected scores [N] and integer targets [N], got Float [2, 2] and Long [2]");
  CHECK(error_of<MetricError>([] {
          m::multiclass_auprc(2).compute(MetricState(at::rand({2, 2}), labels_of({0, 2})));
        }) == "[metrics.auprc] expected targets from 0 to 1, got 2 at position 1");
  CHECK(error_of<MetricError>([] {
          m::binary_auroc().compute(MetricState(at::rand({2}), at::tensor({1.0, 0.5}, at::kDouble)));
        }) == "[metrics.auroc] expected labels that are whole numbers, got 0.5 at position 1");
  CHECK(error_of<MetricError>([] {
          m::multilabel_auprc(2).compute(MetricState(at::rand({1, 2}), at::tensor({2.0F, 1.0F}).view({1, 2})));
        }) == "[metrics.auprc] expected targets from 0 to 1, got 2 at position 0");
  CHECK(error_of<MetricError>([] { m::multilabel_auroc(2).compute(MetricState(at::rand({2, 2}), at::ones({2}))); }) ==
        "[metrics.auroc] expected scores and integer targets [N, labels] of 2, got Float [2, 2] and Float [2]");
  CHECK(error_of<MetricError>([] { m::multiclass_auroc(2).compute(MetricState(at::rand({2, 2}), at::ones({2}))); }) ==
        "[metrics.auroc] expected scores [N, classes] and integer targets [N] of 2, got Float [2, 2] and Float [2]");
  CHECK(error_of<MetricError>([] { m::multilabel_auroc(0); }) ==
        "[metrics.auroc] expected at least one label, got num_labels 0");
}

}  // namespace ranking_tests
