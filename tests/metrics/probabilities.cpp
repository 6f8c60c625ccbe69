#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/metrics/functional/hinge_loss.hpp>
#include <danling/metrics/functional/log_loss.hpp>

#include <metrics/functional/class_sums.hpp>

#include <support/error.hpp>

namespace probabilities_tests {

namespace m = danling::metrics;
using danling::ConfigError;
using danling::MetricError;
using danling::MetricState;
using danling_test::error_of;
using m::Average;
using m::HingeMode;
using m::Task;
using m::detail::ScoreTask;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }
at::Tensor labels_of(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
double number(const at::Tensor& value) { return value.item().toDouble(); }
bool near(double a, double b, double tolerance = 1e-12) { return std::abs(a - b) <= tolerance; }
bool same(const at::Tensor& a, const at::Tensor& b) { return a.allclose(b, 1e-12, 1e-12, /*equal_nan=*/true); }

TEST_CASE("log_loss: the mean of -log of the target's probability", "[metrics]") {
  CHECK(near(number(m::log_loss(numbers({0.9, 0.2}), labels_of({1, 0}))), -(std::log(0.9) + std::log(0.8)) / 2));
  const at::Tensor probabilities = at::rand({50, 4}, at::kDouble).softmax(1);
  const at::Tensor targets = at::randint(0, 4, {50});
  CHECK(near(number(m::log_loss(probabilities, targets, {.num_classes = 4})),
             number(at::nll_loss(probabilities.log(), targets))));
  const at::Tensor decisions = at::randint(0, 2, {50, 4});
  CHECK(near(number(m::log_loss(probabilities, decisions, {.num_labels = 4, .average = Average::micro})),
             number(at::binary_cross_entropy(probabilities, decisions.to(at::kDouble)))));
  // Logits become probabilities first.
  const at::Tensor logits = at::randn({50, 4}, at::kDouble).mul(3);
  CHECK(near(number(m::log_loss(logits, targets, {.num_classes = 4})),
             number(at::nll_loss(logits.log_softmax(1), targets))));
}

TEST_CASE("log_loss: certain and wrong costs what the type can tell from 0", "[metrics]") {
  const double wide = -std::log(std::numeric_limits<double>::epsilon());
  const double narrow = -std::log(static_cast<double>(std::numeric_limits<float>::epsilon()));
  CHECK(near(number(m::log_loss(numbers({0.0}), labels_of({1}))), wide));
  CHECK(near(number(m::log_loss(numbers({1.0}), labels_of({0}))), wide));
  CHECK(near(number(m::log_loss(numbers({1.0}).to(at::kFloat), labels_of({0}))), narrow));
  CHECK(near(number(m::log_loss(numbers({1.0}).to(at::kHalf), labels_of({0}))), narrow));
}

TEST_CASE("log_loss: data that do not count, or are nan", "[metrics]") {
  CHECK(std::isnan(number(m::log_loss(numbers({}), labels_of({})))));
  CHECK(std::isnan(number(m::log_loss(numbers({0.3}), labels_of({-100})))));
  CHECK(std::isnan(number(m::log_loss(numbers({0.3, nan_value}), labels_of({1, 1})))));
  CHECK(near(number(m::log_loss(numbers({0.3, 0.5}), labels_of({-100, 1}))), std::log(2.0)));
  const at::Tensor rows = at::tensor({0.5, 0.5, 0.25, 0.5}, at::kDouble).view({2, 2});
  const at::Tensor labels = at::tensor({1, -100, 1, -100}, at::kLong).view({2, 2});
  const double first = 1.5 * std::log(2.0);
  CHECK(same(m::log_loss(rows, labels, {.num_labels = 2, .average = Average::none}), numbers({first, nan_value})));
  for (const Average average : {Average::macro, Average::weighted, Average::micro}) {
    CHECK(near(number(m::log_loss(rows, labels, {.num_labels = 2, .average = average})), first));
  }
}

TEST_CASE("hinge_loss: margins below 1 cost what they lack", "[metrics]") {
  // Probabilities as they are; torchmetrics 1.9's examples.
  CHECK(near(number(m::hinge_loss(numbers({0.25, 0.25, 0.55, 0.75, 0.75}), labels_of({0, 0, 1, 1, 1}))), 0.69));
  CHECK(near(
      number(m::hinge_loss(numbers({0.25, 0.25, 0.55, 0.75, 0.75}), labels_of({0, 0, 1, 1, 1}), {.squared = true})),
      0.6905));
  const at::Tensor rows =
      at::tensor({0.25, 0.20, 0.55, 0.55, 0.05, 0.40, 0.10, 0.30, 0.60, 0.90, 0.05, 0.05}, at::kDouble).view({4, 3});
  const at::Tensor targets = labels_of({0, 1, 2, 0});
  CHECK(near(number(m::hinge_loss(rows, targets, {.num_classes = 3})), 0.9125));
  CHECK(near(number(m::hinge_loss(rows, targets, {.num_classes = 3, .squared = true})), 1.1131, 5e-5));
  const at::Tensor each = m::hinge_loss(rows, targets, {.num_classes = 3, .mode = HingeMode::one_vs_all});
  CHECK(each.allclose(numbers({0.8750, 1.1250, 1.1000}), 0, 5e-5));
}

TEST_CASE("hinge_loss: decision functions keep their size without normalization", "[metrics]") {
  // scikit-learn's example.
  const at::Tensor decisions = numbers({-2.18, 2.36, 0.09});
  CHECK(near(number(m::hinge_loss(decisions, labels_of({0, 1, 1}), {.normalize = false})), 0.91 / 3));
  const at::Tensor rows = at::tensor({2.0, 0.5, 0.0, 0.0, 0.2, 1.0, 0.1, 0.3, 0.9}, at::kDouble).view({3, 3});
  const double lacking = 0.0 + (1.0 - (0.2 - 1.0)) + (1.0 - (0.9 - 0.3));
  CHECK(near(number(m::hinge_loss(rows, labels_of({0, 1, 2}), {.num_classes = 3, .normalize = false})), lacking / 3));
  // Wide margins of raw scores have no loss; the same scores as probabilities have one.
  CHECK(number(m::hinge_loss(numbers({5.0, -5.0}), labels_of({1, 0}), {.normalize = false})) == 0.0);
  CHECK(number(m::hinge_loss(numbers({5.0, -5.0}), labels_of({1, 0}))) > 0.5);
}

TEST_CASE("probabilities: the device's path equals the host's", "[metrics]") {
  const std::vector<ScoreTask> tasks = {{.task = Task::binary, .num = 1, .ignore_index = -100},
                                        {.task = Task::multiclass, .num = 4, .ignore_index = -100},
                                        {.task = Task::multiclass, .num = 4, .ignore_index = 2},
                                        {.task = Task::multilabel, .num = 3, .ignore_index = -100}};
  for (const ScoreTask& task : tasks) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      for (const std::int64_t size : {0, 1, 70}) {
        INFO(task.text() << ", " << size << " samples");
        const at::Tensor scores = task.task == Task::binary ? at::rand({size}, type) : at::rand({size, task.num}, type);
        at::Tensor targets = at::randint(0, task.task == Task::multiclass ? task.num : 2,
                                         task.task == Task::multilabel ? scores.sizes() : at::IntArrayRef({size}));
        targets.masked_fill_(at::rand(targets.sizes()).lt(0.2), *task.ignore_index);
        CHECK(same(m::detail::log_loss_on_device(scores, targets, task).to(at::kFloat),
                   m::detail::log_loss_on_host(scores, targets, task).to(at::kFloat)));
        if (task.task == Task::multilabel || (task.task == Task::multiclass && size == 0)) {
          continue;
        }
        for (const HingeMode mode : {HingeMode::crammer_singer, HingeMode::one_vs_all}) {
          for (const bool squared : {false, true}) {
            CHECK(m::detail::hinge_on_device(scores, targets, task, squared, mode)
                      .allclose(m::detail::hinge_on_host(scores, targets, task, squared, mode), 1e-6, 1e-6));
          }
        }
      }
    }
  }
}

TEST_CASE("probabilities: sums of batches are the sums of all", "[metrics]") {
  const at::Tensor scores = at::rand({90, 3}, at::kDouble).softmax(1);
  const at::Tensor targets = at::randint(0, 3, {90});
  for (const danling::MetricFunc& metric :
       {m::multiclass_log_loss(3), m::multiclass_hinge_loss(3),
        m::multiclass_hinge_loss(3, {.squared = true, .mode = HingeMode::one_vs_all})}) {
    INFO(metric.name);
    CHECK_FALSE(metric.preds_targets);
    CHECK(metric.higher_is_better == false);
    at::Tensor total = metric.sums[0]->of_batch(scores.narrow(0, 0, 31), targets.narrow(0, 0, 31));
    total += metric.sums[0]->of_batch(scores.narrow(0, 31, 59), targets.narrow(0, 31, 59));
    MetricState state;
    state.set(metric.sums[0], total);
    CHECK(same(metric.compute(state).tensor(), metric.compute(MetricState(scores, targets)).tensor()));
  }
}

TEST_CASE("probabilities: what does not fit is told", "[metrics]") {
  CHECK(error_of<MetricError>([] { m::multiclass_hinge_loss(1); }) ==
        "[metrics.hinge_loss] expected at least two classes, got num_classes 1");
  CHECK(error_of<MetricError>([] { m::hinge_loss(numbers({0.3}), labels_of({1}), {.mode = HingeMode::one_vs_all}); }) ==
        "[metrics.hinge_loss] expected a mode with num_classes only, got one-vs-all for a binary task");
  CHECK(error_of<ConfigError>([] { m::parse_hinge_mode("one-vs-rest"); }).find("one-vs-all") != std::string::npos);
  CHECK(error_of<MetricError>(
            [] { m::multiclass_log_loss(2).compute(MetricState(at::rand({2, 3}), labels_of({0, 1}))); }) ==
        "[metrics.log_loss] expected scores [N, classes] and integer targets [N] of 2, got Float [2, 3] and Long [2]");
}

}  // namespace probabilities_tests
