#include <danling/metrics/stream_metrics.hpp>

#include <cmath>
#include <functional>
#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/functional/regression.hpp>
#include <danling/metrics/global_metrics.hpp>
#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/preprocess.hpp>

#include <metrics/golden.hpp>

#include <support/error.hpp>

namespace {

using danling::MetricError;
using danling::MetricMeter;
using danling::MetricValue;
using danling::StateError;
using danling::StreamMetrics;
using danling::metrics::base_preprocess;
using danling::metrics::binary_accuracy;
using danling_test::error_of;

static_assert(danling::Checkpointable<StreamMetrics>);

at::Tensor scores(std::vector<float> values) { return at::tensor(values, at::kFloat); }
at::Tensor labels(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }
double number(const danling::Result& result, std::string_view name) { return *result.number(name); }

TEST_CASE("MetricMeter: the example of DanLing's docstring", "[metrics]") {
  MetricMeter meter(binary_accuracy());
  meter.update(scores({0.1F, 0.8F, 0.6F, 0.2F}), labels({0, 1, 0, 0}));
  CHECK(meter.val() == 0.75);
  CHECK(meter.avg() == 0.75);
  meter.update(scores({0.1F, 0.7F, 0.3F, 0.2F, 0.8F, 0.4F}), labels({0, 1, 1, 0, 0, 1}));
  CHECK(meter.val() == 0.5);
  CHECK(meter.avg() == 0.6);
  CHECK(meter.sum() == 6.0);
  CHECK(meter.count() == 10);
  meter.reset();
  CHECK(std::isnan(meter.val()));
  CHECK(std::isnan(meter.avg()));
}

TEST_CASE("StreamMetrics: the example of DanLing's docstring", "[metrics]") {
  StreamMetrics metrics({{"acc", binary_accuracy()}});
  metrics.update(scores({0.1F, 0.8F, 0.6F, 0.2F}), labels({0, 1, 0, 0}));
  CHECK(number(metrics.value(), "acc") == 0.75);
  CHECK(number(metrics.average(), "acc") == 0.75);
  metrics.at("acc").update(scores({0.2F, 0.8F}), labels({0, 1}));
  CHECK(number(metrics.count(), "acc") == 6);
}

TEST_CASE("MetricMeter: a mean weighs as its batch, or as it is told", "[metrics]") {
  MetricMeter meter([](const at::Tensor& prediction, const at::Tensor&) { return MetricValue(prediction.mean()); });
  meter.update(scores({1, 3}), {});
  meter.update(scores({6, 6, 6, 6}), {});
  CHECK(meter.avg() == Approx(28.0 / 6));
  meter.update(at::ones({}), {});
  CHECK(meter.count() == 7);
  meter.update(at::zeros({4}), {}, 13);
  CHECK(meter.count() == 20);
  CHECK(meter.n() == 13);
  CHECK(meter.avg() == Approx(29.0 / 20));
}

TEST_CASE("MetricMeter: tensors are averaged element by element, an empty one counts as nan", "[metrics]") {
  MetricMeter meter([](const at::Tensor& prediction, const at::Tensor&) { return MetricValue(prediction.mean(0)); });
  meter.update(scores({1, 2, 3, 4}).view({2, 2}), {});
  meter.update(scores({5, 6}).view({1, 2}), {});
  CHECK(std::get<std::vector<double>>(meter.value()) == std::vector<double>{5, 6});
  CHECK(std::get<std::vector<double>>(meter.average()) == std::vector<double>{3, 4});

  MetricMeter nothing([](const at::Tensor& prediction, const at::Tensor&) { return MetricValue(prediction); });
  nothing.update(at::empty({0}), {}, 1);
  CHECK(std::isnan(nothing.avg()));
  CHECK(nothing.count() == 1);
}

TEST_CASE("MetricMeter: preprocessing comes before the metric and before the batch is counted", "[metrics]") {
  const danling::Preprocess drop_nan = [](const at::Tensor& prediction, const at::Tensor& target) {
    return base_preprocess(prediction, target, {.ignore_nan = true});
  };
  MetricMeter error([](const at::Tensor& prediction,
                       const at::Tensor& target) { return MetricValue((prediction.sub(target)).square().mean()); },
                    drop_nan);
  error.update(scores({1, 2, 3}), scores({2, NAN, 5}));
  CHECK(error.val() == 2.5);
  CHECK(error.count() == 2);
}

TEST_CASE("MetricMeter: an empty function is refused", "[metrics]") {
  CHECK(error_of<MetricError>([] { MetricMeter meter(danling::MetricCallable{}); }) ==
        "[metric_meter.create] expected a metric, got an empty function");
}

TEST_CASE("StreamMetrics: a name that is taken is refused", "[metrics]") {
  StreamMetrics metrics({{"acc", binary_accuracy()}});
  CHECK(error_of<MetricError>([&] { metrics.add({"acc", binary_accuracy()}); }) ==
        "[meters.add] expected a new name, got 'acc', which is taken");
}

danling::MetricFunc counted_mean(std::string name, int& computed) {
  const auto sums = std::make_shared<danling::RunningSums>();
  sums->key = "sum and count";
  sums->of_batch = [&computed](const at::Tensor& preds, const at::Tensor&) {
    ++computed;
    return at::stack({preds.sum(), at::ones({}).mul(preds.numel())}).to(at::kDouble);
  };
  return {.name = std::move(name),
          .sums = {sums},
          .higher_is_better = false,
          .compute = [sums](const danling::MetricState& state) {
            const at::Tensor both = state.sums(sums);
            return MetricValue(both[0].div(both[1]));
          }};
}

TEST_CASE("StreamMetrics: takes metrics beside plain functions; what they share of a batch is computed once",
          "[metrics]") {
  int computed = 0;
  StreamMetrics metrics(
      {counted_mean("mean", computed),
       {"again", counted_mean("other", computed)},
       {"largest", [](const at::Tensor& prediction, const at::Tensor&) { return MetricValue(prediction.max()); }}});
  metrics.update(scores({1, 2, 6}), labels({0, 0, 0}));
  CHECK(computed == 1);
  metrics.update(scores({5}), labels({0}));
  CHECK(computed == 2);
  CHECK(metrics.text(2) == "mean: 5.00 (3.50)\tagain: 5.00 (3.50)\tlargest: 5.00 (5.75)");
  CHECK(metrics.n().text(0) == "mean: 1\tagain: 1\tlargest: 1");
  CHECK(metrics.count().text(0) == "mean: 4\tagain: 4\tlargest: 4");
  CHECK(metrics.higher_is_better("again") == false);
  CHECK_FALSE(metrics.higher_is_better("largest").has_value());
  CHECK_FALSE(metrics.higher_is_better("other").has_value());

  MetricMeter meter(counted_mean("mean", computed));
  meter.update(scores({1, 2}), labels({0, 0}));
  CHECK(meter.avg() == 1.5);
  CHECK(meter.higher_is_better() == false);
}

TEST_CASE("StreamMetrics: a given name takes the place of a metric's own, of two own ones the first stays",
          "[metrics]") {
  int first = 0;
  int second = 0;
  const danling::MetricCallable three = [](const at::Tensor&, const at::Tensor&) { return MetricValue(3.0); };
  StreamMetrics metrics(
      {counted_mean("mean", first), counted_mean("mean", second), counted_mean("max", second), {"max", three}});
  CHECK(metrics.size() == 2);
  metrics.update(scores({1}), labels({0}));
  CHECK(first == 1);
  CHECK(second == 0);
  CHECK(number(metrics.value(), "max") == 3);
  CHECK(error_of<MetricError>([&] { StreamMetrics({{"a", three}, {"a", three}}); }) ==
        "[metrics.create] expected each name once, got 'a' twice");
  // As DanLing's keywords, given names come behind positional ones.
  const StreamMetrics mixed({{"given", three}, counted_mean("own", first)});
  CHECK(mixed.average().begin()->name == "own");
  CHECK(error_of<MetricError>([&] { StreamMetrics({{"", three}}); }) ==
        "[stream_metrics.add] expected a metric with a name, got one without");
  CHECK(error_of<MetricError>([] { StreamMetrics({danling::MetricFunc{.name = "a"}}); }) ==
        "[metric_meter.create] expected a metric with `compute`, got 'a' without");
}

TEST_CASE("StreamMetrics: metrics run without recording gradients", "[metrics]") {
  bool recorded = true;
  StreamMetrics metrics({{"any", [&](const at::Tensor& prediction, const at::Tensor&) {
                            recorded = c10::GradMode::is_enabled() || prediction.mul(2).requires_grad();
                            return MetricValue(prediction.sum());
                          }}});
  metrics.update(at::ones({3}).requires_grad_(), at::zeros({3}));
  CHECK_FALSE(recorded);
  CHECK(c10::GradMode::is_enabled());
}

TEST_CASE("StreamMetrics: predictions and targets of as many elements lose dimensions of size one", "[metrics]") {
  std::vector<std::int64_t> seen;
  StreamMetrics metrics({{"any", [&](const at::Tensor& prediction, const at::Tensor&) {
                            seen = prediction.sizes().vec();
                            return MetricValue(1.0);
                          }}});
  metrics.update(at::ones({1, 1, 4, 1}), at::ones({1, 4}));
  CHECK(seen == std::vector<std::int64_t>{1, 4});
  metrics.update(at::ones({2, 1, 4}), at::ones({2}));
  CHECK(seen == std::vector<std::int64_t>{2, 1, 4});
}

TEST_CASE("base_preprocess: drops what is ignored with its predictions", "[metrics]") {
  // Shapes as in DanLing's docstring.
  const auto [prediction, target] =
      base_preprocess(scores({0.1F, 0.8F, 0.6F, 0.2F}), labels({0, -100, 1, 0}), {.ignore_index = -100});
  CHECK(prediction.equal(scores({0.1F, 0.6F, 0.2F})));
  CHECK(target.equal(labels({0, 1, 0})));
  const auto [rows, kept] = base_preprocess(scores({1, 2, 3, 4}).view({2, 2}), labels({-1, 1}), {.ignore_index = -1});
  CHECK(rows.equal(scores({3, 4}).view({1, 2})));
  CHECK(kept.equal(labels({1})));
  CHECK(error_of<MetricError>([] { base_preprocess(at::ones({3}), labels({1, 2}), {.ignore_index = 0}); }) ==
        "[metrics.preprocess] expected a prediction whose shape begins with the target's, got [3] and [2]");
}

// `acc`, `acc2`, ... of logits.
std::shared_ptr<StreamMetrics> multiclass(std::int64_t num_classes, const std::vector<std::int64_t>& top_k = {1}) {
  std::vector<StreamMetrics::Entry> entries;
  for (const std::int64_t k : top_k) {
    entries.emplace_back(
        k == 1 ? "acc" : danling::detail::concat("acc", k),
        danling::metrics::multiclass_accuracy(num_classes, {.average = danling::metrics::Average::micro, .top_k = k}));
  }
  return std::make_shared<StreamMetrics>(
      std::move(entries), [num_classes](const at::Tensor& prediction, const at::Tensor& target) {
        return danling::metrics::preprocess_multiclass(prediction, target, num_classes, {.probabilities = false});
      });
}

TEST_CASE("StreamMetrics: multiclass accuracy with ignored labels is DanLing's", "[metrics]") {
  const auto metrics = multiclass(6, {1, 2, 4});
  const auto batch = [&](const std::vector<float>& values, const std::vector<std::int64_t>& targets,
                         const std::vector<GoldenRow>& expected) {
    metrics->update(scores(values).view({-1, 6}), labels(targets));
    std::size_t row = 0;
    for (const std::string name : {"acc", "acc2", "acc4"}) {
      INFO(name);
      CHECK(number(metrics->value(), name) == Approx(expected[row].val).epsilon(1e-6));
      CHECK(number(metrics->average(), name) == Approx(expected[row].avg).epsilon(1e-6));
      CHECK(metrics->at(name).n() == expected[row].n);
      CHECK(metrics->at(name).count() == expected[row].count);
      ++row;
    }
  };
  batch(multiclass_scores_0, multiclass_labels_0, multiclass_rows_0);
  batch(multiclass_scores_1, multiclass_labels_1, multiclass_rows_1);
  batch(multiclass_scores_2, multiclass_labels_2, multiclass_rows_2);
}

TEST_CASE("StreamMetrics: binary accuracy of probabilities and logits is DanLing's", "[metrics]") {
  StreamMetrics metrics({{"acc", binary_accuracy()}});
  const auto batch = [&](const std::vector<float>& values, const std::vector<std::int64_t>& targets,
                         const std::vector<GoldenRow>& expected) {
    metrics.update(scores(values), labels(targets));
    CHECK(number(metrics.value(), "acc") == Approx(expected[0].val).epsilon(1e-6));
    CHECK(number(metrics.average(), "acc") == Approx(expected[0].avg).epsilon(1e-6));
    CHECK(metrics.at("acc").n() == expected[0].n);
    CHECK(metrics.at("acc").count() == expected[0].count);
  };
  batch(binary_scores_0, binary_labels_0, binary_rows_0);
  batch(binary_scores_1, binary_labels_1, binary_rows_1);
  batch(binary_scores_2, binary_labels_2, binary_rows_2);
}

TEST_CASE("StreamMetrics: numbers without dimensions are a row, as in GlobalMetrics", "[metrics]") {
  const at::Tensor two = at::full({}, 2.0);
  const at::Tensor five = at::full({}, 5.0);
  danling::GlobalMetrics global({danling::metrics::mse()});
  StreamMetrics stream({danling::metrics::mse()});
  MetricMeter meter(danling::metrics::mse());
  danling::MultiTaskMetrics tasks;
  tasks.add("t", danling::metrics::mse());
  global.update(two, five);
  stream.update(two, five);
  meter.update(two, five);
  tasks.update({{"t", two, five}});
  CHECK(number(global.average(), "mse") == 9);
  CHECK(number(stream.average(), "mse") == 9);
  CHECK(number(stream.count(), "mse") == 1);
  CHECK(std::get<double>(meter.average()) == 9);
  CHECK(number(tasks.average(), "t.mse") == 9);
}

TEST_CASE("StreamMetrics: a runner drives it through Metrics", "[metrics]") {
  const std::shared_ptr<danling::Metrics> metrics = multiclass(3, {1, 2});
  metrics->update(scores({3, 2, 1, 1, 3, 2}).view({2, 3}), labels({1, 1}));
  metrics->update(scores({1, 2, 3, 1, 2, 3}).view({2, 3}), labels({2, 2}));
  metrics->synchronize(danling::Group());
  CHECK(metrics->text() == "acc: 1.0000 (0.7500)\tacc2: 1.0000 (1.0000)");
  CHECK(metrics->batch().text(2) == "acc: 1.00\tacc2: 1.00");
  const auto state = danling::clone(metrics->state_dict());
  metrics->reset();
  CHECK(metrics->text() == "acc: nan (nan)\tacc2: nan (nan)");
  metrics->load_state_dict(state);
  CHECK(metrics->text() == "acc: 1.0000 (0.7500)\tacc2: 1.0000 (1.0000)");
  CHECK(danling::first_difference(metrics->state_dict(), state).empty());
}

TEST_CASE("StreamMetrics: a state of other metrics is refused and changes nothing", "[metrics]") {
  const auto one = multiclass(3);
  const auto two = multiclass(3, {1, 2});
  two->update(scores({3, 2, 1}).view({1, 3}), labels({0}));
  const std::string before = two->text();
  CHECK(error_of<StateError>([&] { two->load_state_dict(one->state_dict()); }) ==
        "[stream_metrics.load_state_dict] expected metrics [acc, acc2], got ['acc']");
  CHECK(error_of<StateError>([&] { one->load_state_dict(two->state_dict()); }) ==
        "[stream_metrics.load_state_dict] expected metrics [acc], got ['acc', 'acc2']");
  CHECK(two->text() == before);
}

TEST_CASE("StreamMetrics: a metric that throws changes nothing, of any", "[metrics]") {
  bool broken = false;
  StreamMetrics metrics({{"acc", binary_accuracy()},
                         {"mine",
                          [&](const at::Tensor& prediction, const at::Tensor&) {
                            if (broken) {
                              throw MetricError("not now");
                            }
                            return MetricValue(prediction.mean());
                          }},
                         {"last", binary_accuracy()}});
  metrics.update(scores({0.5F, 0.75F}), labels({0, 1}));
  const std::string before = metrics.text();
  broken = true;
  CHECK_THROWS_AS(metrics.update(scores({0.25F}), labels({1})), MetricError);
  CHECK(metrics.text() == before);
  CHECK(number(metrics.count(), "acc") == 2);
  broken = false;
  metrics.update(scores({0.25F}), labels({1}));
  CHECK(number(metrics.count(), "acc") == 3);
  CHECK(number(metrics.average(), "mine") == 0.5);
}

TEST_CASE("StreamMetrics: an error of a metric names it, and keeps its type", "[metrics]") {
  struct Own : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  std::function<MetricValue(const at::Tensor&)> run;
  StreamMetrics metrics({{"acc", binary_accuracy()},
                         {"mine", [&](const at::Tensor& prediction, const at::Tensor&) { return run(prediction); }}});
  const auto update = [&] { metrics.update(scores({0.5F, 0.75F}), labels({0, 1})); };
  run = [](const at::Tensor&) -> MetricValue { throw MetricError("[my.metric] no"); };
  CHECK(error_of<MetricError>(update) == "[my.metric] no; in metric 'mine'");
  run = [](const at::Tensor&) -> MetricValue { throw StateError("[my.metric] no"); };
  CHECK(error_of<StateError>(update) == "[my.metric] no; in metric 'mine'");
  run = [](const at::Tensor&) -> MetricValue { throw std::runtime_error("metric broke"); };
  CHECK(error_of<std::runtime_error>(update) == "metric broke; in metric 'mine'");
  run = [](const at::Tensor&) -> MetricValue { throw std::out_of_range("metric broke"); };
  CHECK(error_of<std::out_of_range>(update) == "metric broke; in metric 'mine'");
  run = [](const at::Tensor& prediction) { return MetricValue(prediction.view({3})); };
  CHECK_THAT(error_of<c10::Error>(update), ContainsSubstring("in metric 'mine'"));
  run = [](const at::Tensor&) -> MetricValue { throw Own("mine"); };
  CHECK(error_of<Own>(update) == "mine");
  run = [](const at::Tensor& prediction) { return MetricValue(prediction); };
  update();
  CHECK(error_of<MetricError>([&] { metrics.update(scores({0.5F, 0.75F, 1}), labels({0, 1, 1})); }) ==
        "[average_meter.update] expected a tensor of shape [2] as before, got a tensor of shape [3]; average over "
        "the samples of a batch first, or call reset() between the two; in metric 'mine'");
}

TEST_CASE("StreamMetrics: undefined tensors are refused by name", "[metrics]") {
  StreamMetrics metrics({{"acc", binary_accuracy()}});
  CHECK(error_of<MetricError>([&] { metrics.update({}, labels({1})); }) ==
        "[metrics.preprocess] expected a prediction and a target, got an undefined tensor and Long [1]");
  CHECK(error_of<MetricError>([&] { metrics.update(scores({1}), {}); }) ==
        "[metrics.preprocess] expected a prediction and a target, got Float [1] and an undefined tensor");
}

}  // namespace
