#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/linspace.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/metrics/functional/calibration_error.hpp>

#include <metrics/functional/class_sums.hpp>

#include <support/error.hpp>

namespace calibration_tests {

namespace m = danling::metrics;
using danling::ConfigError;
using danling::MetricError;
using danling::MetricState;
using danling_test::error_of;
using m::CalibrationNorm;
using m::Task;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }
at::Tensor labels_of(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
double number(const at::Tensor& value) { return value.item().toDouble(); }
bool near(double a, double b) { return std::abs(a - b) < 1e-12; }

TEST_CASE("calibration_error: gaps of bins by three norms", "[metrics]") {
  // torchmetrics 1.9's example: two bins, of 2 and 3 samples, with gaps 0.25 and 0.3167.
  const at::Tensor scores = numbers({0.25, 0.25, 0.55, 0.75, 0.75});
  const at::Tensor labels = labels_of({0, 0, 1, 1, 1});
  const double second = 1.0 - 2.05 / 3;
  CHECK(near(number(m::calibration_error(scores, labels, {.n_bins = 2})), 0.4 * 0.25 + 0.6 * second));
  CHECK(near(number(m::calibration_error(scores, labels, {.n_bins = 2, .norm = CalibrationNorm::l2})),
             std::sqrt(0.4 * 0.0625 + 0.6 * second * second)));
  CHECK(near(number(m::calibration_error(scores, labels, {.n_bins = 2, .norm = CalibrationNorm::max})), second));
}

TEST_CASE("calibration_error: several classes are judged by the likeliest", "[metrics]") {
  const at::Tensor rows =
      at::tensor({0.25, 0.20, 0.55, 0.55, 0.05, 0.40, 0.10, 0.30, 0.60, 0.90, 0.05, 0.05}, at::kDouble).view({4, 3});
  // torchmetrics 1.9's example: confidences 0.55, 0.55, 0.6, 0.9; all correct except the second.
  const double first = 0.55 - 0.5;
  CHECK(near(number(m::calibration_error(rows, labels_of({0, 1, 2, 0}), {.num_classes = 3, .n_bins = 100})),
             0.5 * 0.55 + 0.25 * 0.4 + 0.25 * 0.1));
  CHECK(near(number(m::calibration_error(rows, labels_of({2, 1, 2, 0}), {.num_classes = 3, .n_bins = 100})),
             0.5 * first + 0.25 * 0.4 + 0.25 * 0.1));
}

TEST_CASE("calibration_error: confidence 1 has a bin of its own", "[metrics]") {
  // In one bin with 0.95 the gaps would cancel: the accuracy is 0.5, the confidence 0.975.
  const at::Tensor scores = numbers({1.0, 0.95});
  CHECK(near(number(m::calibration_error(scores, labels_of({0, 1}), {.n_bins = 10})), 0.5 * 1.0 + 0.5 * 0.05));
}

TEST_CASE("calibration_error: data that do not count, or are nan", "[metrics]") {
  for (const CalibrationNorm norm : {CalibrationNorm::l1, CalibrationNorm::l2, CalibrationNorm::max}) {
    CHECK(std::isnan(number(m::calibration_error(numbers({}), labels_of({}), {.norm = norm}))));
    CHECK(std::isnan(number(m::calibration_error(numbers({0.3}), labels_of({-100}), {.norm = norm}))));
    CHECK(
        std::isnan(number(m::calibration_error(numbers({0.1, nan_value, 0.3}), labels_of({1, 1, 0}), {.norm = norm}))));
    CHECK(near(number(m::calibration_error(numbers({0.75, 0.3}), labels_of({1, -100}), {.norm = norm})), 0.25));
  }
}

TEST_CASE("calibration_error: the device's path equals the host's, and batches add up", "[metrics]") {
  const std::vector<m::detail::ScoreTask> tasks = {{.task = Task::binary, .num = 1, .ignore_index = -100},
                                                   {.task = Task::multiclass, .num = 5, .ignore_index = -100}};
  for (const auto& task : tasks) {
    for (const std::int64_t size : {0, 1, 400}) {
      const at::Tensor scores = task.task == Task::binary ? at::rand({size}) : at::rand({size, 5}).mul(4).softmax(1);
      const at::Tensor targets = at::randint(0, task.task == Task::binary ? 2 : 5, {size});
      targets.masked_fill_(at::rand({size}).lt(0.2), -100);
      const at::Tensor limits = at::linspace(0.0, 1.0, 16, at::kFloat).to(at::kDouble);
      const at::Tensor host = m::detail::calibration_on_host(scores, targets, task, limits);
      CHECK(host.allclose(m::detail::calibration_on_device(scores, targets, task, 15), 1e-9, 1e-9));
    }
  }
  const at::Tensor scores = at::rand({100}, at::kDouble);
  const at::Tensor targets = at::randint(0, 2, {100});
  const danling::MetricFunc metric = m::binary_calibration_error();
  CHECK_FALSE(metric.preds_targets);
  CHECK(metric.higher_is_better == false);
  at::Tensor total = metric.sums[0]->of_batch(scores.narrow(0, 0, 13), targets.narrow(0, 0, 13));
  total += metric.sums[0]->of_batch(scores.narrow(0, 13, 87), targets.narrow(0, 13, 87));
  MetricState state;
  state.set(metric.sums[0], total);
  CHECK(near(metric.compute(state).number(), metric.compute(MetricState(scores, targets)).number()));
}

TEST_CASE("calibration_error: what does not fit is told", "[metrics]") {
  CHECK(error_of<MetricError>([] { m::binary_calibration_error({.n_bins = 0}); }) ==
        "[metrics.calibration_error] expected a positive n_bins, got 0");
  CHECK(error_of<ConfigError>([] {
          m::parse_calibration_norm("l3");
        }).starts_with("[metrics.parse_calibration_norm] expected one of l1, l2, max, got 'l3'"));
}

}  // namespace calibration_tests
