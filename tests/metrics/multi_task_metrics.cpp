#include <danling/metrics/multi_task_metrics.hpp>

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <support/error.hpp>

namespace multi_task_tests {

using danling::Aggregate;
using danling::GlobalMetrics;
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling::MultiTaskMetrics;
using danling::Result;
using danling::State;
using danling::StateError;
using danling::StreamMetrics;
using danling::metrics::binary_accuracy;
using danling_test::error_of;

static_assert(danling::Checkpointable<MultiTaskMetrics>);

at::Tensor scores(std::vector<float> values) { return at::tensor(values, at::kFloat); }
at::Tensor labels(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
double number(const Result& result, std::string_view path) {
  const double* found = result.number(path);
  REQUIRE(found != nullptr);
  return *found;
}

std::shared_ptr<StreamMetrics> accuracy() {
  return std::make_shared<StreamMetrics>(StreamMetrics({{"acc", binary_accuracy()}}));
}

// Returns its input: the mean of the predictions over the first dimension.
MetricFunc mean(std::string name = "mean") {
  return {
      .name = std::move(name), .preds_targets = true, .higher_is_better = true, .compute = [](const MetricState& s) {
        return s.preds().mean(0);
      }};
}

MultiTaskMetrics two_tasks(danling::MultiTaskOptions options) {
  MultiTaskMetrics metrics(std::move(options));
  metrics.add("dataset1", accuracy());
  metrics.add("dataset2", accuracy());
  return metrics;
}

void first_batch(MultiTaskMetrics& metrics) {
  metrics.update({{"dataset1", scores({0.2F, 0.4F, 0.6F, 0.7F}), labels({0, 1, 0, 1})},
                  {"dataset2", scores({0.1F, 0.4F, 0.6F, 0.8F}), labels({1, 0, 0, 0})}});
}

TEST_CASE("MultiTaskMetrics: the example of DanLing's docstring", "[metrics]") {
  auto metrics = two_tasks({.aggregate = Aggregate::macro});
  first_batch(metrics);
  CHECK(metrics.text() == "dataset1: acc: 0.5000 (0.5000)\ndataset2: acc: 0.2500 (0.2500)");
  metrics.update({{"dataset1", scores({0.1F, 0.4F, 0.6F, 0.8F}), labels({0, 0, 1, 0})},
                  {"dataset2", scores({0.2F, 0.3F, 0.6F, 0.7F}), labels({0, 0, 0, 1})}});
  CHECK(number(metrics.average(), "aggregate.acc") == 0.5625);
  CHECK(error_of<MetricError>([&] { metrics.update({{"loss", scores({1}), labels({1})}}); }) ==
        "[multi_task_metrics.update] expected a task of [dataset1, dataset2], got 'loss'");
}

TEST_CASE("MultiTaskMetrics: without aggregation there are the tasks alone", "[metrics]") {
  auto metrics = two_tasks({});
  first_batch(metrics);
  CHECK(metrics.average().text() == "dataset1: acc: 0.5000\ndataset2: acc: 0.2500");
  CHECK(metrics.n().text(0) == "dataset1: acc: 4\ndataset2: acc: 4");
  metrics.reset();
  CHECK(metrics.average().empty());
  CHECK(metrics.text() == "dataset1: acc: nan (nan)\ndataset2: acc: nan (nan)");
}

TEST_CASE("MultiTaskMetrics: micro weighs by samples, of the batch or of all", "[metrics]") {
  auto metrics = two_tasks({.aggregate = Aggregate::micro});
  metrics.update({{"dataset1", scores({1, 1, 1}), labels({1, 1, 1})}, {"dataset2", scores({1}), labels({0})}});
  CHECK(number(metrics.value(), "aggregate.acc") == 0.75);
  metrics.update({{"dataset2", scores({1, 1}), labels({0, 0})}});
  CHECK(number(metrics.value(), "aggregate.acc") == Approx(0.6));
  CHECK(number(metrics.batch(), "aggregate.acc") == Approx(0.6));
  CHECK(number(metrics.average(), "aggregate.acc") == 0.5);
  CHECK(number(metrics.count(), "dataset2.acc") == 3);
}

TEST_CASE("MultiTaskMetrics: weighted takes the weights it was given", "[metrics]") {
  auto metrics = two_tasks({.aggregate = Aggregate::weighted, .aggregate_weights = {{"dataset1", 3}, {"dataset2", 1}}});
  first_batch(metrics);
  CHECK(number(metrics.average(), "aggregate.acc") == Approx((3 * 0.5 + 0.25) / 4));
  auto zero = two_tasks({.aggregate = Aggregate::weighted, .aggregate_weights = {{"dataset1", 0}, {"dataset2", 0}}});
  first_batch(zero);
  CHECK(std::get<Result>(*zero.average().find("aggregate")).empty());
}

TEST_CASE("MultiTaskMetrics: refuses weights that do not fit", "[metrics]") {
  const auto create = [](danling::MultiTaskOptions options) {
    return error_of<MetricError>([&] { MultiTaskMetrics metrics(options); });
  };
  CHECK(create({.aggregate = Aggregate::weighted}) ==
        "[multi_task_metrics.create] expected aggregate_weights with aggregate weighted, got none");
  CHECK(create({.aggregate_weights = {{"a", 1}}}) ==
        "[multi_task_metrics.create] expected no aggregate_weights without aggregate weighted, got 1");
  CHECK(create({.aggregate = Aggregate::weighted, .aggregate_weights = {{"a", -1}}}) ==
        "[multi_task_metrics.create] expected the aggregate weight of task 'a' to be finite and not negative, got "
        "-1.0");
  CHECK(create({.aggregate = Aggregate::weighted, .aggregate_weights = {{"a", NAN}}}) ==
        "[multi_task_metrics.create] expected the aggregate weight of task 'a' to be finite and not negative, got nan");
  auto missing = two_tasks({.aggregate = Aggregate::weighted, .aggregate_weights = {{"dataset1", 1}}});
  first_batch(missing);
  CHECK(error_of<MetricError>([&] { missing.average(); }) ==
        "[multi_task_metrics.aggregate] expected aggregate_weights of every task, got none for 'dataset2'");
  auto unknown = two_tasks({.aggregate = Aggregate::weighted, .aggregate_weights = {{"dataset3", 1}}});
  CHECK(error_of<MetricError>([&] { unknown.average(); }) ==
        "[multi_task_metrics.aggregate] expected aggregate_weights of tasks of [dataset1, dataset2], got 'dataset3'");
}

TEST_CASE("MultiTaskMetrics: metrics meet by name, and nan is skipped", "[metrics]") {
  MultiTaskMetrics metrics({.aggregate = Aggregate::macro});
  metrics.add("a", GlobalMetrics({mean("x"), mean("y")}));
  metrics.add("b", GlobalMetrics({mean("y")}));
  metrics.add("never", GlobalMetrics({mean("y")}));
  metrics.add("nan", mean("y"));
  metrics.update(
      {{"a", scores({1, 3}), labels({0, 0})}, {"b", scores({5}), labels({0})}, {"nan", scores({NAN}), labels({0})}});
  const Result average = metrics.average();
  CHECK(average.text(0) == "a: x: 2\ty: 2\nb: y: 5\naggregate: x: 2\ty: 4");
  CHECK(metrics.higher_is_better("a.x") == true);
  CHECK(metrics.higher_is_better("nan.y") == true);
  CHECK(metrics.higher_is_better("nan.x") == std::nullopt);
  CHECK(metrics.higher_is_better("aggregate.y") == true);
  CHECK(metrics.higher_is_better("z") == std::nullopt);
}

TEST_CASE("MultiTaskMetrics: values per class are averaged class by class", "[metrics]") {
  MultiTaskMetrics metrics({.aggregate = Aggregate::macro});
  metrics.add("a", mean());
  metrics.add("b", mean());
  const auto rows = [](std::vector<float> values) { return scores(std::move(values)).unsqueeze(0); };
  metrics.update({{"a", rows({1, 2, 3}), labels({0})}, {"b", rows({3, 4, 8}), labels({0})}});
  const Result average = metrics.average();
  CHECK(std::get<std::vector<double>>(*std::get<Result>(*average.find("aggregate")).find("mean")) ==
        std::vector<double>{2, 3, 5.5});
}

TEST_CASE("MultiTaskMetrics: refuses to mix scalars and tensors, or shapes", "[metrics]") {
  MultiTaskMetrics metrics({.aggregate = Aggregate::macro});
  metrics.add("a", mean());
  metrics.add("b", mean());
  const auto rows = [](std::vector<float> values) { return scores(std::move(values)).unsqueeze(0); };
  metrics.update({{"a", scores({1}), labels({0})}, {"b", rows({3, 4}), labels({0})}});
  CHECK(
      error_of<MetricError>([&] { metrics.average(); }) ==
      "[multi_task_metrics.aggregate] expected metric 'mean' to have one shape in all tasks, got a scalar of 'a' and a "
      "tensor [2] of 'b'");
  metrics.reset();
  metrics.update({{"a", rows({1, 2, 3}), labels({0})}, {"b", rows({3, 4}), labels({0})}});
  CHECK(error_of<MetricError>([&] { metrics.average(); }) ==
        "[multi_task_metrics.aggregate] expected metric 'mean' to have one shape in all tasks, got a tensor [3] of 'a' "
        "and a "
        "tensor [2] of 'b'");
}

TEST_CASE("MultiTaskMetrics: a plain function is a meter, named as the task", "[metrics]") {
  MultiTaskMetrics metrics;
  metrics.add("size", [](const at::Tensor& p, const at::Tensor& t) { return danling::MetricValue((p - t).mean()); });
  metrics.add("kind", binary_accuracy());
  metrics.update({{"size", scores({3, 4}), scores({1, 2})}, {"kind", scores({1, 0}), labels({1, 1})}});
  CHECK(metrics.average().text(1) == "size: size: 2.0\nkind: acc: 0.5");
  CHECK(metrics.text(1) == "size: 2.0 (2.0)\nkind: 0.5 (0.5)");
}

TEST_CASE("MultiTaskMetrics: an unknown task changes nothing; tasks have names of their own", "[metrics]") {
  auto metrics = two_tasks({.aggregate = Aggregate::macro});
  CHECK_THROWS_AS(metrics.update({{"dataset1", scores({1}), labels({1})}, {"dataset", scores({1}), labels({1})}}),
                  MetricError);
  CHECK(number(metrics.count(), "dataset1.acc") == 0);
  CHECK(error_of<MetricError>([&] { metrics.at("dataset"); }) ==
        "[multi_task_metrics.at] expected a task of [dataset1, dataset2], got 'dataset'; did you mean 'dataset1'?");
  CHECK(error_of<MetricError>([&] { metrics.add("dataset1", accuracy()); }) ==
        "[multi_task_metrics.add] expected a new task, got 'dataset1', which is taken");
  CHECK(error_of<MetricError>([&] { metrics.add("", accuracy()); }) ==
        "[multi_task_metrics.add] expected a task with a name, got none");
  CHECK(error_of<MetricError>([&] { metrics.add("a", std::shared_ptr<danling::MetricsBase>()); }) ==
        "[multi_task_metrics.add] expected metrics for task 'a', got a null pointer");
  CHECK(error_of<MetricError>([&] { metrics.add("aggregate", accuracy()); }) ==
        "[multi_task_metrics.add] expected another name for a task where tasks are aggregated, got 'aggregate'");
  metrics.add("inner", std::make_shared<MultiTaskMetrics>());
  CHECK(error_of<MetricError>([&] { metrics.update({{"inner", scores({1}), labels({1})}}); }) ==
        "[multi_task_metrics.update] expected a task that takes predictions and targets, got 'inner'");
}

TEST_CASE("MultiTaskMetrics: tasks within tasks aggregate by their whole path", "[metrics]") {
  MultiTaskMetrics metrics({.aggregate = Aggregate::micro});
  std::vector<std::shared_ptr<MultiTaskMetrics>> inner;
  for (const char* name : {"a", "b"}) {
    inner.push_back(std::make_shared<MultiTaskMetrics>());
    inner.back()->add("kind", accuracy());
    metrics.add(name, inner.back());
  }
  inner[0]->update({{"kind", scores({1, 1, 1}), labels({1, 1, 1})}});
  inner[1]->update({{"kind", scores({1}), labels({0})}});
  CHECK(number(metrics.average(), "aggregate.kind.acc") == 0.75);
}

TEST_CASE("MultiTaskMetrics: a saved state goes on, one that does not fit changes nothing", "[metrics]") {
  const auto create = [] {
    auto metrics = std::make_unique<MultiTaskMetrics>();
    metrics->add("a", GlobalMetrics({mean()}));
    metrics->add("b", accuracy());
    return metrics;
  };
  const auto one = create();
  one->update({{"a", scores({1, 2}), labels({0, 0})}, {"b", scores({1}), labels({1})}});
  const auto two = create();
  two->load_state_dict(danling::clone(one->state_dict()));
  CHECK(two->text() == one->text());
  State bad = danling::clone(one->state_dict());
  bad["a"]["preds"] = at::ones({7});
  bad["a"]["targets"] = at::ones({7});
  bad["b"] = std::int64_t{3};
  CHECK_THROWS_AS(two->load_state_dict(bad), StateError);
  CHECK(danling::bitwise_equal(two->state_dict(), one->state_dict()));
  MultiTaskMetrics other;
  other.add("a", accuracy());
  CHECK(error_of<StateError>([&] { other.load_state_dict(one->state_dict()); }) ==
        "[multi_task_metrics.load_state_dict] expected tasks [a], got [a, b]");
}

}  // namespace multi_task_tests
