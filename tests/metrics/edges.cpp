// Metrics of one class or label, and of ranks and streams without data.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/metrics/build.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/functional.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/preprocess.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace edges_tests {

namespace m = danling::metrics;
using danling::concat;
using danling::ConfigError;
using danling::GlobalMetrics;
using danling::Group;
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using m::Average;

double number(const at::Tensor& value) { return value.item().toDouble(); }

// --- One class, one label ---

TEST_CASE("metrics: one label without an average is a value of one element", "[metrics]") {
  const at::Tensor preds = at::tensor({0.2, 0.9, 0.4}).view({3, 1});
  const at::Tensor targets = at::tensor({0, 1, 1}).view({3, 1});
  const m::MultilabelOptions each = {.average = Average::none};
  for (const MetricFunc& metric :
       {m::multilabel_accuracy(1, each), m::multilabel_balanced_accuracy(1, each), m::multilabel_hamming_loss(1, each),
        m::multilabel_precision(1, each), m::multilabel_recall(1, each), m::multilabel_specificity(1, each),
        m::multilabel_f1_score(1, each), m::multilabel_fbeta_score(1, 2.0, each), m::multilabel_jaccard_index(1, each),
        m::multilabel_auroc(1, {.average = Average::none}), m::multilabel_auprc(1, {.average = Average::none}),
        m::multilabel_auroc(1, {.average = Average::none, .thresholds = 5}),
        m::multilabel_auprc(1, {.average = Average::none, .thresholds = 5}),
        m::multilabel_log_loss(1, {.average = Average::none})}) {
    INFO(metric.name);
    CHECK(metric.compute(MetricState(preds, targets)).tensor().sizes() == at::IntArrayRef({1}));
  }
  for (const Average average : {Average::micro, Average::macro, Average::weighted}) {
    CHECK(m::auroc(preds, targets, {.num_labels = 1, .average = average}).dim() == 0);
    CHECK(number(m::auroc(preds, targets, {.num_labels = 1, .average = average})) == 1.0);
    CHECK(number(m::auprc(preds, targets, {.num_labels = 1, .average = average})) == 1.0);
  }
  CHECK(m::auroc(preds, targets, {.num_labels = 1, .average = Average::none}).sizes() == at::IntArrayRef({1}));
}

TEST_CASE("metrics: one class is refused by all", "[metrics]") {
  const std::string sentence = "expected at least two classes, got num_classes 1";
  const at::Tensor scores = at::rand({3, 1});
  const at::Tensor labels = at::zeros({3}, at::kLong);
  const std::vector<std::function<void()>> calls = {
      [] { m::multiclass_accuracy(1); },
      [] { m::multiclass_hamming_loss(1); },
      [] { m::multiclass_f1_score(1); },
      [] { m::multiclass_mcc(1); },
      [] { m::multiclass_cohen_kappa(1); },
      [] { m::multiclass_confusion_matrix(1); },
      [] { m::multiclass_auroc(1); },
      [] { m::multiclass_auprc(1, {.thresholds = 5}); },
      [] { m::multiclass_calibration_error(1); },
      [] { m::multiclass_log_loss(1); },
      [] { m::multiclass_hinge_loss(1); },
      [] { m::multiclass_metrics(1); },
      [&] { m::preprocess_multiclass(scores, labels, 1); },
      [&] { m::auroc(scores, labels, {.num_classes = 1}); },
      [&] { m::log_loss(scores, labels, {.num_classes = 1}); },
      [&] { m::calibration_error(scores, labels, {.num_classes = 1}); },
      [&] { m::hinge_loss(scores, labels, {.num_classes = 1}); },
      [&] { m::roc(scores, labels, {.num_classes = 1}); },
      [&] { m::precision_recall_curve(scores, labels, {.num_classes = 1}); },
      [&] { m::accuracy(scores, labels, {.num_classes = 1}); }};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string text = error_of<MetricError>(calls[i]);
    INFO("call " << i << ": " << text);
    CHECK((text.size() > sentence.size() && text.substr(text.size() - sentence.size()) == sentence));
  }
  CHECK(error_of<ConfigError>([] { m::build({.type = "multiclass", .num_classes = 1}); }) ==
        "[metrics.build] expected num_classes of at least 2, got 1");
}

TEST_CASE("metrics: options have DanLing's defaults and the names of others", "[metrics]") {
  const at::Tensor preds = at::tensor({0.2, 0.9, 0.4, 0.7});
  const at::Tensor targets = at::tensor({0, 1, 1, 0});
  const MetricState state(preds, targets);
  CHECK(m::binary_fbeta_score().compute(state).number() == m::binary_f1_score().compute(state).number());
  CHECK(m::binary_fbeta().compute(state).number() == m::binary_f1().compute(state).number());
  CHECK(m::multiclass_fbeta_score(3).name == "fbeta");
  CHECK(m::multilabel_fbeta_score(3).name == "fbeta");
  CHECK(m::parse_hinge_mode("crammer_singer") == m::HingeMode::crammer_singer);
  CHECK(m::parse_hinge_mode("crammer-singer") == m::HingeMode::crammer_singer);
  CHECK(m::parse_hinge_mode("one_vs_all") == m::HingeMode::one_vs_all);
  CHECK(m::parse_kappa_weights("quadratic") == m::KappaWeights::quadratic);
  CHECK(m::parse_normalize("true") == m::Normalize::targets);
  CHECK(m::parse_normalize("all") == m::Normalize::all);
  CHECK(error_of<ConfigError>([] { m::parse_kappa_weights("square"); }) ==
        "[metrics.parse_kappa_weights] expected one of none, linear, quadratic, got 'square'");
}

// --- Ranks and streams without data ---

// All factory defaults, and metrics of sums and of predictions in one container; targets of which none counts.
struct Defaults {
  std::shared_ptr<danling::Metrics> metrics;
  at::Tensor preds;
  at::Tensor targets;
};
std::vector<Defaults> all_defaults() {
  return {{m::binary_metrics(), at::rand({4}), at::full({4}, -100, at::kLong)},
          {m::multiclass_metrics(3), at::rand({4, 3}), at::full({4}, -100, at::kLong)},
          {m::multilabel_metrics(2), at::rand({4, 2}), at::full({4, 2}, -100, at::kLong)},
          {m::regression_metrics(), at::rand({4}), at::full({4}, std::nan(""))},
          {m::regression_metrics({.num_outputs = 2}), at::rand({4, 2}), at::full({4, 2}, std::nan(""))}};
}

void expect_all_nan(const danling::Result& result, const std::string& what) {
  expect(result.size() > 0, what + " to have values");
  for (const auto& [name, value] : result.flatten()) {
    expect(std::isnan(value), concat(what, " of ", name, " to be nan, got ", value));
  }
}

TEST_CASE("factories: a rank without data reads nan where no rank has a row that counts", "[metrics]") {
  for (const int without : {0, 1}) {
    const auto texts = run_ranks(3, [&](const Group& group) {
      for (Defaults& each : all_defaults()) {
        if (group.rank() == without + 1) {
          each.metrics->update(each.preds, each.targets);  // the others never saw a batch
        }
        for (int twice = 0; twice < 2; ++twice) {
          each.metrics->synchronize(group);
          expect_all_nan(each.metrics->average(), "the average");
          expect_all_nan(each.metrics->batch(), "the batch");
          expect_all_nan(each.metrics->value(), "the value");
        }
        if (group.rank() != without + 1) {
          expect(each.metrics->state_dict().find("preds") == nullptr, "a state that stays the rank's own");
        }
      }
      danling::MultiTaskMetrics tasks;
      tasks.add("a", m::regression_metrics());
      tasks.add("b", m::binary_metrics());
      if (group.rank() == 2) {
        tasks.update({{"a", at::rand({2}), at::full({2}, std::nan(""))}});
      }
      tasks.synchronize(group);
      for (const danling::Result& result : {tasks.average(), tasks.batch()}) {
        for (const auto& [name, value] : result.flatten()) {
          expect(std::isnan(value), concat("nan of ", name, ", got ", value));
        }
      }
      return std::string("done");
    });
    check_ranks(texts, "done");
  }
}

TEST_CASE("factories: containers and streams that saw nothing, or nothing that counts, are nan", "[metrics]") {
  for (Defaults& each : all_defaults()) {
    expect_all_nan(each.metrics->average(), "the average of nothing");
    each.metrics->update(each.preds, each.targets);
    expect_all_nan(each.metrics->average(), "the average");
    expect_all_nan(each.metrics->value(), "the value");
  }
  // As the page says: a matrix of all data is 0, that of a stream has no batch to average.
  const at::Tensor preds = at::empty({0, 2});
  const at::Tensor labels = at::empty({0}, at::kLong);
  danling::StreamMetrics stream({m::multiclass_confusion_matrix(2)});
  stream.update(preds, labels);
  expect_all_nan(stream.average(), "a stream's matrix");
  GlobalMetrics all({m::multiclass_confusion_matrix(2)});
  all.update(preds, labels);
  for (const auto& [name, value] : all.average().flatten()) {
    CHECK(value == 0.0);
  }
}

}  // namespace edges_tests
