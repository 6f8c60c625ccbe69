#include <danling/metrics/functional/curves.hpp>

#include <limits>
#include <vector>

#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/trapezoid.h>

#include <danling/core/error.hpp>
#include <danling/metrics/functional/ranking.hpp>

#include <support/error.hpp>

namespace curves_tests {

namespace m = danling::metrics;
using danling::MetricError;
using danling_test::error_of;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }
at::Tensor labels_of(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == at::kDouble && a.sizes() == b.sizes() && a.allclose(b, 1e-12, 1e-12, /*equal_nan=*/true);
}

TEST_CASE("roc: one point per distinct score, from the highest", "[metrics]") {
  // torchmetrics 1.9: binary_roc of its example.
  const auto curves = m::roc(numbers({0.0, 0.5, 0.7, 0.8}), labels_of({0, 1, 1, 0}));
  REQUIRE(curves.size() == 1);
  CHECK(same(curves[0].fpr, numbers({0, 0.5, 0.5, 0.5, 1})));
  CHECK(same(curves[0].tpr, numbers({0, 0, 0.5, 1, 1})));
  CHECK(same(curves[0].thresholds, numbers({1, 0.8, 0.7, 0.5, 0})));
  const auto tied = m::roc(numbers({0.5, 0.5, 0.7}), labels_of({0, 1, 1}));
  CHECK(same(tied[0].fpr, numbers({0, 0, 1})));
  CHECK(same(tied[0].tpr, numbers({0, 0.5, 1})));
}

TEST_CASE("roc: even thresholds are counted as in torchmetrics", "[metrics]") {
  // torchmetrics 1.9: binary_roc(thresholds=5) of its example.
  const auto curves = m::roc(numbers({0.0, 0.5, 0.7, 0.8}), labels_of({0, 1, 1, 0}), {.thresholds = 5});
  CHECK(same(curves[0].fpr, numbers({0, 0.5, 0.5, 0.5, 1})));
  CHECK(same(curves[0].tpr, numbers({0, 0, 1, 1, 1})));
  CHECK(same(curves[0].thresholds, numbers({1, 0.75, 0.5, 0.25, 0})));
}

TEST_CASE("precision_recall_curve: points of rising thresholds, then (1, 0)", "[metrics]") {
  // torchmetrics 1.9: binary_precision_recall_curve of its example, exact and with thresholds=5.
  const at::Tensor scores = numbers({0.0, 0.5, 0.7, 0.8});
  const at::Tensor labels = labels_of({0, 1, 1, 0});
  const auto exact = m::precision_recall_curve(scores, labels);
  CHECK(same(exact[0].precision, numbers({0.5, 2.0 / 3, 0.5, 0, 1})));
  CHECK(same(exact[0].recall, numbers({1, 1, 0.5, 0, 0})));
  CHECK(same(exact[0].thresholds, numbers({0, 0.5, 0.7, 0.8})));
  const auto even = m::precision_recall_curve(scores, labels, {.thresholds = 5});
  CHECK(same(even[0].precision, numbers({0.5, 2.0 / 3, 2.0 / 3, 0, nan_value, 1})));
  CHECK(same(even[0].recall, numbers({1, 1, 1, 0, 0, 0})));
  CHECK(same(even[0].thresholds, numbers({0, 0.25, 0.5, 0.75, 1})));
}

TEST_CASE("curves: the areas below them are AUROC and average precision", "[metrics]") {
  const at::Tensor scores = at::rand({200, 3}, at::kDouble).mul(30).floor().div(30);
  const at::Tensor labels = at::randint(0, 2, {200, 3}).masked_fill(at::rand({200, 3}).lt(0.2), -100);
  const auto curves = m::roc(scores, labels, {.num_labels = 3});
  const auto steps = m::precision_recall_curve(scores, labels, {.num_labels = 3});
  const at::Tensor auroc = m::auroc(scores, labels, {.num_labels = 3, .average = m::Average::none});
  const at::Tensor auprc = m::auprc(scores, labels, {.num_labels = 3, .average = m::Average::none});
  REQUIRE(curves.size() == 3);
  REQUIRE(steps.size() == 3);
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto& curve = curves[static_cast<std::size_t>(c)];
    const auto& step = steps[static_cast<std::size_t>(c)];
    CHECK(same(at::trapezoid(curve.tpr, curve.fpr), auroc[c]));
    const at::Tensor lost = step.recall.diff().neg();
    CHECK(same(lost.mul(step.precision.narrow(0, 0, lost.numel())).sum(), auprc[c]));
  }
}

TEST_CASE("curves: data without positives, negatives, or anything", "[metrics]") {
  const at::Tensor scores = numbers({0.2, 0.6});
  CHECK(same(m::roc(scores, labels_of({1, 1}))[0].fpr, numbers({0, 0, 0})));
  CHECK(same(m::roc(scores, labels_of({0, 0}))[0].tpr, numbers({0, 0, 0})));
  CHECK(same(m::precision_recall_curve(scores, labels_of({0, 0}))[0].recall, numbers({1, 1, 0})));
  CHECK(same(m::roc(numbers({}), labels_of({}))[0].tpr, numbers({0})));
  CHECK(same(m::precision_recall_curve(numbers({}), labels_of({}))[0].precision, numbers({1})));
  CHECK(m::roc(numbers({0.2, nan_value}), labels_of({0, 1}))[0].tpr.isnan().all().item().toBool());

  const at::Tensor rows = at::tensor({0.5, 0.2, 0.3, 0.1, 0.6, 0.3}, at::kDouble).view({2, 3});
  const auto absent = m::precision_recall_curve(rows, labels_of({0, 1}), {.num_classes = 3});
  CHECK(same(absent[2].recall, numbers({nan_value, 0})));
  const auto only_first = m::precision_recall_curve(rows, labels_of({0, 0}), {.num_classes = 3});
  CHECK(same(only_first[2].recall, numbers({1, 0})));
  CHECK(same(only_first[0].recall, numbers({1, 0.5, 0})));
}

TEST_CASE("curves: what does not fit is told", "[metrics]") {
  CHECK(error_of<MetricError>([] { m::roc(numbers({0.2}), labels_of({1}), {.num_classes = 2, .num_labels = 2}); }) ==
        "[metrics.roc] expected num_classes or num_labels, got both");
  CHECK(error_of<MetricError>([] { m::precision_recall_curve(numbers({0.2}), labels_of({1}), {.class_dim = 0}); }) ==
        "[metrics.precision_recall_curve] expected class_dim with num_classes only");
}

}  // namespace curves_tests
