// Metrics of one class or label, and of ranks and streams without data.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
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
#include <danling/runner/results.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace edges_tests {

namespace m = danling::metrics;
using danling::ConfigError;
using danling::GlobalMetrics;
using danling::Group;
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling::detail::concat;
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
  CHECK(error_of<ConfigError>([] { m::build_metrics({.type = "multiclass", .num_classes = 1}); }) ==
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

TEST_CASE("metrics: matrices stay matrices in containers, texts and over tasks", "[metrics]") {
  const at::Tensor preds = at::tensor({0.9, 0.1, 0.2, 0.8, 0.7, 0.3}).view({3, 2});
  const at::Tensor targets = at::tensor({0, 1, 1});
  const danling::Result::Array expected = {.shape = {2, 2}, .values = {1, 0, 1, 1}};
  GlobalMetrics all({m::multiclass_confusion_matrix(2)});
  danling::StreamMetrics stream({m::multiclass_confusion_matrix(2)});
  for (danling::Metrics* metrics : std::vector<danling::Metrics*>{&all, &stream}) {
    metrics->update(preds, targets);
    CHECK(std::get<danling::Result::Array>(*metrics->average().find("confusion_matrix")) == expected);
    CHECK(metrics->average().text(1) == "confusion_matrix: [[1.0, 0.0], [1.0, 1.0]]");
    CHECK(*metrics->average().number("confusion_matrix.1.0") == 1.0);
  }
  CHECK(stream.text(0) == "confusion_matrix: [[1, 0], [1, 1]] ([[1, 0], [1, 1]])");
  GlobalMetrics labels({m::multilabel_confusion_matrix(2)});
  labels.update(preds, at::tensor({1, 0, 0, 1, 0, 0}).view({3, 2}));
  CHECK(std::get<danling::Result::Array>(*labels.average().find("confusion_matrix")).shape ==
        std::vector<std::int64_t>{2, 2, 2});
  // A checkpoint's results.
  const danling::Result read = danling::result_from_state(danling::to_state(labels.average()));
  CHECK(std::get<danling::Result::Array>(*read.find("confusion_matrix")) ==
        std::get<danling::Result::Array>(*labels.average().find("confusion_matrix")));
  CHECK(read.flatten()[6].first == "confusion_matrix/1/1/0");
  CHECK(read.number("confusion_matrix.1.2.0") == nullptr);
}

TEST_CASE("roc and precision_recall_curve: as metrics they are the functions' curves", "[metrics]") {
  const at::Tensor preds = at::rand({60});
  const at::Tensor targets = at::randint(0, 2, {60});
  const MetricState state(preds, targets);
  for (const std::optional<std::int64_t> thresholds : {std::optional<std::int64_t>(), std::optional<std::int64_t>(7)}) {
    const auto roc = m::roc(preds, targets, {.thresholds = thresholds}).front();
    const at::Tensor rows = m::binary_roc({.thresholds = thresholds}).compute(state).tensor();
    CHECK((rows[0].equal(roc.fpr) && rows[1].equal(roc.tpr) && rows[2].equal(roc.thresholds)));
    const auto curve = m::precision_recall_curve(preds, targets, {.thresholds = thresholds}).front();
    const at::Tensor points = m::binary_precision_recall_curve({.thresholds = thresholds}).compute(state).tensor();
    CHECK((points[0].allclose(curve.precision, 0, 0, true) && points[1].equal(curve.recall)));
    CHECK(points[2].narrow(0, 0, curve.thresholds.numel()).equal(curve.thresholds));
    CHECK(std::isnan(number(points[2][-1])));
  }
  const at::Tensor scores = at::rand({40, 3}).softmax(1);
  const at::Tensor classes = at::randint(0, 3, {40});
  GlobalMetrics all({m::multiclass_roc(3, {.thresholds = 5})});
  all.update(scores.narrow(0, 0, 10), classes.narrow(0, 0, 10));
  all.update(scores.narrow(0, 10, 30), classes.narrow(0, 10, 30));
  const auto curves = m::roc(scores, classes, {.num_classes = 3, .thresholds = 5});
  const auto array = std::get<danling::Result::Array>(*all.average().find("roc"));
  CHECK(array.shape == std::vector<std::int64_t>{3, 3, 5});
  CHECK(array.values[5 * 3 + 2] == number(curves[1].fpr[2]));
  CHECK(error_of<MetricError>([] { m::multilabel_roc(3, {}); }) ==
        "[metrics.roc] expected thresholds for several curves, since exact ones differ in length, got none");
  for (const MetricFunc& metric :
       {m::binary_roc(), m::binary_roc({.thresholds = 4}), m::binary_precision_recall_curve(),
        m::binary_precision_recall_curve({.thresholds = 4})}) {
    const at::Tensor none = metric.compute(MetricState(at::empty({0}), at::empty({0}, at::kLong))).tensor();
    CHECK((none.dim() == 2 && none.isnan().all().item<bool>()));
  }
}

TEST_CASE("metrics::build_metrics: perplexity and curves have names, and take what they need", "[metrics]") {
  const at::Tensor logits = at::rand({4, 3}).mul(0.9);  // within [0, 1], and logits still
  const at::Tensor labels = at::tensor({0, 2, -100, 1});
  const auto words = m::build_metrics({.type = "multiclass", .num_classes = 3, .metrics = {"acc", "perplexity"}});
  words->update(logits, labels);
  CHECK(std::abs(*words->average().number("perplexity") - number(m::perplexity(logits, labels))) < 1e-9);
  CHECK(error_of<MetricError>(
            [] { m::build_metrics({.type = "multiclass", .num_classes = 3, .metrics = {"perplexity", "auroc"}}); }) ==
        "[metrics.multiclass_metrics] expected metrics of predicted classes with 'perplexity', which reads logits, got "
        "'auroc', which reads probabilities; put it in a separate container");
  CHECK(error_of<MetricError>([] {
          m::build_metrics(
              {.type = "multiclass", .num_classes = 3, .scores = m::Scores::probabilities, .metrics = {"perplexity"}});
        }) ==
        "[metrics.multiclass_metrics] expected scores detect or logits for 'perplexity', which reads logits, got "
        "probabilities");
  const auto curves = m::build_metrics({.type = "multilabel",
                                        .num_labels = 2,
                                        .mode = m::Mode::stream,
                                        .thresholds = 4,
                                        .metrics = {"roc", "precision_recall_curve", "auroc"}});
  curves->update(at::rand({6, 2}), at::randint(0, 2, {6, 2}));
  CHECK(std::get<danling::Result::Array>(*curves->average().find("roc")).shape == std::vector<std::int64_t>{2, 3, 4});
  CHECK(std::get<danling::Result::Array>(*curves->average().find("precision_recall_curve")).shape ==
        std::vector<std::int64_t>{2, 3, 5});
  CHECK(error_of<ConfigError>([] { m::build_metrics({.type = "binary", .thresholds = 4, .metrics = {"acc"}}); }) ==
        "[metrics.build] expected options that some of the binary metrics use, got thresholds");
}

// --- Ranks and streams without data ---

// All factory defaults, and metrics of sums and of predictions in one container; all targets are ignored.
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
  // As on the page: a matrix of all data is 0, that of a stream has no batch to average.
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

TEST_CASE("hinge_loss: a nan score of another class makes the loss nan, in any column", "[metrics]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& scores : {at::tensor({nan, 0.5, 0.3}), at::tensor({0.5, nan, 0.3})}) {
    CHECK(std::isnan(m::hinge_loss(scores.unsqueeze(0), at::tensor({2}), {.num_classes = 3}).item<double>()));
  }
}

}  // namespace edges_tests
