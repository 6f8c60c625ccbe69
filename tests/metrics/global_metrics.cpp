#include <danling/metrics/global_metrics.hpp>

#include <cmath>
#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/metrics/multi_task_metrics.hpp>
#include <danling/metrics/stream_metrics.hpp>

#include <metrics/host_staging.hpp>
#include <metrics/row_store.hpp>

#include <support/error.hpp>

namespace global_metrics_tests {

using danling::GlobalMetrics;
using danling::MetricError;
using danling::MetricFunc;
using danling::MetricState;
using danling::Result;
using danling::RunningSums;
using danling::State;
using danling::StateError;
using danling::detail::RowStore;
using danling_test::error_of;

static_assert(danling::Checkpointable<GlobalMetrics>);

at::Tensor floats(std::vector<float> values) { return at::tensor(values, at::kFloat); }
double number(const Result& result, std::string_view name) { return *result.number(name); }

// The sum and the number of squared errors as [2], and how often they were computed.
struct Squares {
  std::shared_ptr<int> made = std::make_shared<int>(0);
  danling::RunningSumsPtr sums = std::make_shared<RunningSums>(
      RunningSums{.key = "squares", .of_batch = [made = made](const at::Tensor& preds, const at::Tensor& targets) {
                    ++*made;
                    const at::Tensor squares = (preds - targets).to(at::kDouble).pow(2);
                    return at::stack({squares.sum(), at::ones({}, at::kDouble) * static_cast<double>(preds.size(0))});
                  }});

  MetricFunc mse() const {
    return {.name = "mse", .sums = {sums}, .higher_is_better = false, .compute = [sums = sums](const MetricState& s) {
              return s.sums(sums)[0] / s.sums(sums)[1];
            }};
  }
  MetricFunc rmse() const {
    return {.name = "rmse", .sums = {sums}, .higher_is_better = false, .compute = [sums = sums](const MetricState& s) {
              return (s.sums(sums)[0] / s.sums(sums)[1]).sqrt();
            }};
  }
};

// Depends on all data together, so no average over batches equals it.
MetricFunc median_error() {
  return {.name = "median", .preds_targets = true, .compute = [](const MetricState& s) {
            return (s.preds() - s.targets()).to(at::kDouble).median();
          }};
}

TEST_CASE("GlobalMetrics: values of the last batch and of all data", "[metrics]") {
  const Squares squares;
  GlobalMetrics metrics({median_error(), squares.mse(), squares.rmse()});
  CHECK(std::isnan(number(metrics.average(), "median")));
  CHECK(std::isnan(number(metrics.value(), "mse")));
  metrics.update(floats({1, 2, 9}), floats({0, 0, 0}));
  metrics.update(floats({5}), floats({1}));
  CHECK(number(metrics.value(), "median") == 4);
  CHECK(number(metrics.average(), "median") == 2);
  CHECK(number(metrics.value(), "mse") == 16);
  CHECK(number(metrics.average(), "mse") == Approx((1 + 4 + 81 + 16) / 4.0));
  CHECK(number(metrics.average(), "rmse") == Approx(std::sqrt(102 / 4.0)));
  CHECK(number(metrics.batch(), "rmse") == 4);
  CHECK(number(metrics.n(), "mse") == 1);
  CHECK(number(metrics.count(), "median") == 4);
  CHECK(metrics.text() == "median: 4.0000 (2.0000)\tmse: 16.0000 (25.5000)\trmse: 4.0000 (5.0498)");
  CHECK(*squares.made == 2);  // once a batch, for both metrics that read it
  CHECK(metrics.higher_is_better("mse") == false);
  CHECK(metrics.higher_is_better("median") == std::nullopt);
  CHECK(metrics.higher_is_better("nothing") == std::nullopt);
  metrics.reset();
  CHECK(std::isnan(number(metrics.average(), "rmse")));
  CHECK(number(metrics.count(), "mse") == 0);
  metrics.update(floats({3}), floats({1}));
  CHECK(number(metrics.average(), "mse") == 4);
}

TEST_CASE("GlobalMetrics: keeps predictions only where a metric reads them", "[metrics]") {
  const Squares squares;
  GlobalMetrics sums({squares.mse()});
  sums.update(floats({1, 2}), floats({0, 0}));
  CHECK_FALSE(sums.preds().defined());
  CHECK(at::equal(sums.sums("squares"), at::tensor({5.0, 2.0}, at::kDouble)));
  CHECK(error_of<MetricError>([&] { sums.sums("square"); }) ==
        "[global_metrics.sums] expected one of [squares], got 'square'; did you mean 'squares'?");
  GlobalMetrics all({squares.mse(), median_error()});
  all.update(floats({1, 2}), floats({0, 0}));
  all.update(floats({3}), floats({7}));
  CHECK(at::equal(all.preds(), floats({1, 2, 3})));
  CHECK(at::equal(all.targets(), floats({0, 0, 7})));
}

TEST_CASE("GlobalMetrics: does not share memory with what it was given", "[metrics]") {
  GlobalMetrics metrics({median_error(), Squares().mse()});
  at::Tensor prediction = floats({1, 2, 3});
  metrics.update(prediction, at::zeros({3}));
  prediction.fill_(100);
  CHECK(number(metrics.value(), "median") == 2);
  const at::Tensor before = metrics.preds();
  metrics.update(prediction, at::zeros({3}));
  CHECK(at::equal(before, floats({1, 2, 3})));
  CHECK(number(metrics.value(), "median") == 100);
}

TEST_CASE("GlobalMetrics: the average is computed once between updates", "[metrics]") {
  int computed = 0;
  GlobalMetrics metrics({MetricFunc{.name = "sum", .preds_targets = true, .compute = [&](const MetricState& s) {
                                      ++computed;
                                      return s.preds().sum();
                                    }}});
  metrics.update(floats({1}), floats({1}));
  metrics.average();
  CHECK(number(metrics.average(), "sum") == 1);
  CHECK(computed == 1);
  metrics.update(floats({2}), floats({1}));
  CHECK(number(metrics.average(), "sum") == 3);
  CHECK(computed == 2);
}

TEST_CASE("GlobalMetrics: one value per class is a list; a batch without any gives nan", "[metrics]") {
  GlobalMetrics metrics({MetricFunc{
      .name = "mean", .preds_targets = true, .compute = [](const MetricState& s) { return s.preds().mean(0); }}});
  metrics.update(floats({1, 2, 3, 4}).view({2, 2}), at::zeros({2}));
  CHECK(std::get<std::vector<double>>(*metrics.average().find("mean")) == std::vector<double>{2, 3});
  GlobalMetrics nothing(
      {MetricFunc{.name = "all", .preds_targets = true, .compute = [](const MetricState& s) { return s.preds(); }}});
  nothing.update(at::empty({0}), at::empty({0}));
  CHECK(std::isnan(number(nothing.average(), "all")));
}

TEST_CASE("GlobalMetrics: of metrics of one name the first stays", "[metrics]") {
  const Squares squares;
  const GlobalMetrics metrics({squares.mse(), squares.rmse().named("mse"), squares.rmse().named("other")});
  REQUIRE(metrics.metrics().size() == 2);
  CHECK(metrics.metrics()[1].name == "other");
}

TEST_CASE("GlobalMetrics: refuses what cannot be computed", "[metrics]") {
  const Squares squares;
  const auto create = [](std::vector<danling::MetricEntry> metrics) {
    return error_of<MetricError>([&] { GlobalMetrics made(metrics); });
  };
  CHECK(create({}) == "[global_metrics.create] expected at least one metric, got none");
  CHECK(create({squares.mse().named("")}) == "[global_metrics.create] expected metrics with names, got one without");
  CHECK(create({MetricFunc{.name = "a", .preds_targets = true}}) ==
        "[global_metrics.create] expected 'a' to have a function `compute`, got none");
  CHECK(create({MetricFunc{.name = "a", .compute = median_error().compute}}) ==
        "[global_metrics.create] expected 'a' to set `preds_targets` or `sums`, got neither");
}

TEST_CASE("GlobalMetrics, StreamMetrics, MultiTaskMetrics: refuse metrics whose sums cannot be made", "[metrics]") {
  const auto with = [](danling::RunningSumsPtr sums) {
    return MetricFunc{.name = "a", .sums = {std::move(sums)}, .compute = median_error().compute};
  };
  const auto of_batch = [](const at::Tensor& preds, const at::Tensor&) { return preds.sum(); };
  const std::vector<std::pair<MetricFunc, std::string>> bad = {
      {with(nullptr), "expected 'a' to read sums, got a null pointer"},
      {with(std::make_shared<RunningSums>(RunningSums{.key = "", .of_batch = of_batch})),
       "expected the sums that 'a' reads to have a key, got none"},
      {with(std::make_shared<RunningSums>(RunningSums{.key = "k", .of_batch = {}})),
       "expected the sums 'k' that 'a' reads to have a function `of_batch`, got none"}};
  danling::MultiTaskMetrics tasks;
  const auto add = [&](const MetricFunc& metric) { return error_of<MetricError>([&] { tasks.add("t", metric); }); };
  for (const auto& [metric, text] : bad) {
    CHECK(error_of<MetricError>([&] { GlobalMetrics made({metric}); }) == "[global_metrics.create] " + text);
    CHECK(error_of<MetricError>([&] { danling::StreamMetrics made({metric}); }) == "[metric_meter.create] " + text);
    CHECK(add(metric) == "[multi_task_metrics.add] " + text);
  }
  CHECK(add({}) == "[multi_task_metrics.add] expected metrics with names, got one without");
  CHECK(add({.name = "a"}) == "[multi_task_metrics.add] expected 'a' to have a function `compute`, got none");
  CHECK(tasks.tasks().empty());
}

TEST_CASE("GlobalMetrics: refuses a batch unlike those before, and keeps what it has", "[metrics]") {
  GlobalMetrics metrics({median_error(), Squares().mse()},
                        {.preprocess = [](const at::Tensor& p, const at::Tensor& t) { return std::pair(p, t); }});
  metrics.update(at::ones({2, 3}), at::zeros({2, 3}));
  const auto update = [&](const at::Tensor& prediction, const at::Tensor& target) {
    return error_of<MetricError>([&] { metrics.update(prediction, target); });
  };
  CHECK(update(at::ones({2, 4}), at::zeros({2, 4})) ==
        "[global_metrics.update] expected predictions as in earlier batches, Float [*, 3], got Float [2, 4]");
  CHECK(update(at::ones({2, 3}, at::kDouble), at::zeros({2, 3})) ==
        "[global_metrics.update] expected predictions as in earlier batches, Float [*, 3], got Double [2, 3]");
  CHECK(update(at::ones({2, 3}), at::zeros({2, 3}, at::kLong)) ==
        "[global_metrics.update] expected targets as in earlier batches, Float [*, 3], got Long [2, 3]");
  CHECK(update(at::ones({2, 3}), at::zeros({3, 3})) ==
        "[global_metrics.update] expected as many rows of predictions as of targets, got Float [2, 3] and Float [3, "
        "3]");
  CHECK(update(at::ones({2, 3}), {}) ==
        "[global_metrics.update] expected a prediction and a target, got Float [2, 3] and an undefined tensor");
  CHECK(number(metrics.count(), "mse") == 2);
  CHECK(number(metrics.average(), "mse") == 3);
  metrics.reset();
  metrics.update(at::ones({2, 4}), at::zeros({2, 4}));
  CHECK(metrics.preds().size(1) == 4);
}

TEST_CASE("GlobalMetrics: an error of a metric or of its sums names the metric", "[metrics]") {
  const auto breaks = std::make_shared<RunningSums>(RunningSums{
      .key = "broken",
      .of_batch = [](const at::Tensor&, const at::Tensor&) -> at::Tensor { throw MetricError("[my.sums] no"); }});
  const MetricFunc of_sums{
      .name = "mine", .sums = {breaks}, .compute = [](const MetricState&) { return danling::MetricValue(0.0); }};
  GlobalMetrics sums({median_error(), of_sums});
  CHECK(error_of<MetricError>([&] { sums.update(at::ones({2}), at::zeros({2})); }) == "[my.sums] no; in metric 'mine'");
  CHECK(number(sums.count(), "mine") == 0);
  const MetricFunc of_rows{
      .name = "mine", .preds_targets = true, .compute = [](const MetricState&) -> danling::MetricValue {
        throw std::runtime_error("metric broke");
      }};
  GlobalMetrics values({median_error(), of_rows});
  values.update(at::ones({2}), at::zeros({2}));
  for (const auto& read : {&GlobalMetrics::value, &GlobalMetrics::batch, &GlobalMetrics::average}) {
    CHECK(error_of<std::runtime_error>([&] { (values.*read)(); }) == "metric broke; in metric 'mine'");
  }
}

TEST_CASE("GlobalMetrics: rows that are all ignored, or have a nan, are not counted", "[metrics]") {
  const auto as_it_is = [](const at::Tensor& p, const at::Tensor& t) { return std::pair(p, t); };
  GlobalMetrics labels({median_error()}, {.preprocess = as_it_is, .ignore_index = -1});
  labels.update(at::zeros({4, 2}), at::tensor({0, -1, -1, -1, 1, 0, -1, -1}, at::kLong).view({4, 2}));
  labels.update(at::zeros({1, 2}), at::tensor({-1, -1}, at::kLong).view({1, 2}));
  CHECK(number(labels.count(), "median") == 2);
  CHECK(number(labels.n(), "median") == 0);
  GlobalMetrics shorts({median_error()}, {.preprocess = as_it_is, .ignore_index = -1});
  shorts.update(at::zeros({4, 2}), at::tensor({0, -1, -1, -1, 1, 0, -1, -1}, at::kLong).view({4, 2}).to(at::kInt));
  CHECK(number(shorts.n(), "median") == 2);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    GlobalMetrics numbers({median_error()}, {.preprocess = as_it_is, .ignore_nan = true});
    numbers.update(at::zeros({3, 2}), at::tensor({1.0, 2.0, 1.0, NAN, NAN, NAN}, dtype).view({3, 2}));
    CHECK(number(numbers.n(), "median") == 1);
  }
}

TEST_CASE("GlobalMetrics: goes on from a saved state with the same numbers", "[metrics]") {
  const Squares squares;
  const auto feed = [](GlobalMetrics& metrics, int from, int to) {
    for (int i = from; i < to; ++i) {
      metrics.update(at::arange(i, 2 * i + 1, at::kFloat), at::zeros({i + 1}));
    }
  };
  GlobalMetrics whole({median_error(), squares.mse()});
  feed(whole, 0, 30);
  GlobalMetrics first({median_error(), squares.mse()});
  feed(first, 0, 17);
  const State saved = danling::clone(first.state_dict());
  GlobalMetrics second({median_error(), squares.mse()});
  second.update(floats({1}), floats({1}));
  second.load_state_dict(saved);
  CHECK(second.text() == first.text());
  CHECK(number(second.n(), "mse") == 17);
  feed(second, 17, 30);
  CHECK(second.text() == whole.text());
  CHECK(number(second.count(), "mse") == number(whole.count(), "mse"));
  CHECK(danling::bitwise_equal(second.state_dict(), whole.state_dict()));
}

TEST_CASE("GlobalMetrics: the state of sums is small, and of nothing smaller", "[metrics]") {
  const Squares squares;
  GlobalMetrics metrics({squares.mse()});
  const State empty = metrics.state_dict();
  metrics.update(at::ones({1000}), at::zeros({1000}));
  const State state = metrics.state_dict();
  CHECK(state.find("preds") == nullptr);
  CHECK(at::equal(state.at("sums").at("squares").tensor(), at::tensor({1000.0, 1000.0}, at::kDouble)));
  metrics.load_state_dict(empty);
  CHECK(std::isnan(number(metrics.average(), "mse")));
  CHECK(number(metrics.count(), "mse") == 0);
}

TEST_CASE("GlobalMetrics: a state that does not fit changes nothing", "[metrics]") {
  const Squares squares;
  GlobalMetrics metrics({squares.mse()});
  metrics.update(floats({2}), floats({0}));
  GlobalMetrics keeping({median_error()});
  keeping.update(floats({2}), floats({0}));
  CHECK(error_of<StateError>([&] { metrics.load_state_dict(keeping.state_dict()); }) ==
        "[global_metrics.load_state_dict] expected the state of metrics that do not store predictions, got that of "
        "metrics that do");
  State other = danling::clone(metrics.state_dict());
  other["sums"] = State::Map{{"moments", at::ones({2})}};
  CHECK(error_of<StateError>([&] { metrics.load_state_dict(other); }) ==
        "[global_metrics.load_state_dict] expected sums 'squares', got none");
  other = danling::clone(metrics.state_dict());
  other["count"] = std::int64_t{-1};
  CHECK(error_of<StateError>([&] { metrics.load_state_dict(other); }) ==
        "[global_metrics.load_state_dict] expected counts that are not negative and n within count, got n 1 and count "
        "-1");
  other = danling::clone(keeping.state_dict());
  other["targets"] = at::ones({4});
  CHECK(error_of<StateError>([&] { keeping.load_state_dict(other); }) ==
        "[global_metrics.load_state_dict] expected as many predictions as targets, and no fewer than the last 1, got "
        "Float [1] and Float [4]");
  CHECK(number(metrics.average(), "mse") == 4);
  CHECK(number(keeping.average(), "median") == 2);
}

TEST_CASE("RowStore: rows of any batch size come back in order, and little memory is unused", "[metrics]") {
  for (const std::int64_t batch : {1, 7, 64, 1024}) {
    RowStore store;
    std::vector<at::Tensor> given;
    for (std::int64_t i = 0; i < 300; ++i) {
      given.push_back(at::rand({batch + i % 3, 4}));
      store.append(given.back(), std::nullopt);
      if (store.stored_bytes() > 100000) {
        REQUIRE(static_cast<double>(store.taken_bytes()) < 1.14 * static_cast<double>(store.stored_bytes()));
      }
      if (i == 130) {
        CHECK(at::equal(store.all(), at::cat(given)));
      }
    }
    CHECK(at::equal(store.slice(store.size() - 2 * batch - 1, store.size() - 1),
                    at::cat(given).slice(0, store.size() - 2 * batch - 1, store.size() - 1)));
    CHECK(at::equal(store.all(), at::cat(given)));
    CHECK(store.taken_bytes() == store.stored_bytes());
  }
}

TEST_CASE("RowStore: rows that are not contiguous, or empty", "[metrics]") {
  RowStore store;
  CHECK_FALSE(store.all().defined());
  const at::Tensor rows = at::rand({6, 5});
  store.append(rows.narrow(0, 0, 0).t().reshape({0, 6}), std::nullopt);
  CHECK(store.all().sizes() == at::IntArrayRef({0, 6}));
  store.append(rows.t(), std::nullopt);
  CHECK(at::equal(store.all(), rows.t()));
  CHECK(store.description() == "Float [*, 6]");
}

TEST_CASE("HostStaging: gives rows on in the order in which they came", "[metrics]") {
  danling::detail::HostStaging staging;
  std::vector<at::Tensor> given;
  std::vector<at::Tensor> arrived;
  const auto sink = [&](const at::Tensor& rows) { arrived.push_back(rows.clone()); };
  for (int i = 0; i < 50; ++i) {
    given.push_back(at::rand({1 + (i * 37) % 200, 500}));
    staging.add(given.back(), sink);
  }
  given.push_back(at::rand({3000, 500}));  // larger than a block
  staging.add(given.back(), sink);
  CHECK(arrived.size() > 2);
  staging.finish(sink);
  CHECK(at::equal(at::cat(arrived), at::cat(given)));
}

}  // namespace global_metrics_tests
