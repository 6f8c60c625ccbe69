#include <danling/metrics/functional/regression.hpp>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/metrics/functional/correlation.hpp>

#include <metrics/functional/moments.hpp>

#include <support/error.hpp>

namespace regression_tests {

namespace m = danling::metrics;
using danling::ConfigError;
using danling::MetricError;
using danling::MetricState;
using danling_test::error_of;
using m::MultiOutput;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }
double number(const at::Tensor& value) { return value.item().toDouble(); }
bool near(double a, double b, double tolerance = 1e-12) {
  return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
}
bool same(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-10) {
  return a.sizes() == b.sizes() && a.allclose(b, tolerance, tolerance, /*equal_nan=*/true);
}

std::vector<danling::MetricFunc> of_moments(std::int64_t num_outputs) {
  return {m::mae({.num_outputs = num_outputs}),
          m::mse({.num_outputs = num_outputs}),
          m::rmse({.num_outputs = num_outputs}),
          m::mape({.num_outputs = num_outputs}),
          m::r2_score({.num_outputs = num_outputs}),
          m::explained_variance({.num_outputs = num_outputs, .multioutput = MultiOutput::variance_weighted}),
          m::pearson({.num_outputs = num_outputs, .multioutput = MultiOutput::raw_values}),
          m::concordance({.num_outputs = num_outputs})};
}

TEST_CASE("regression: errors and scores of a small example", "[metrics]") {
  // scikit-learn's examples.
  const at::Tensor preds = numbers({2.5, 0.0, 2, 8});
  const at::Tensor targets = numbers({3, -0.5, 2, 7});
  CHECK(number(m::mae(preds, targets)) == 0.5);
  CHECK(number(m::mse(preds, targets)) == 0.375);
  CHECK(near(number(m::rmse(preds, targets)), std::sqrt(0.375)));
  CHECK(near(number(m::mape(preds, targets)), 0.32738095238095233));
  CHECK(near(number(m::r2_score(preds, targets)), 0.9486081370449679));
  CHECK(near(number(m::explained_variance(preds, targets)), 0.9571734475374732));
}

TEST_CASE("regression: several outputs, each alone or averaged", "[metrics]") {
  // scikit-learn's examples.
  const at::Tensor preds = at::tensor({0.0, 2.0, -1.0, 2.0, 8.0, -5.0}, at::kDouble).view({3, 2});
  const at::Tensor targets = at::tensor({0.5, 1.0, -1.0, 1.0, 7.0, -6.0}, at::kDouble).view({3, 2});
  CHECK(same(m::mae(preds, targets, {.num_outputs = 2}), numbers({0.5, 1.0})));
  CHECK(same(m::mse(preds, targets, {.num_outputs = 2}), numbers({0.41666666666666669, 1.0})));
  CHECK(near(number(m::mse(preds, targets, {.num_outputs = 2, .multioutput = MultiOutput::uniform_average})),
             0.7083333333333334));
  CHECK(near(number(m::rmse(preds, targets, {.num_outputs = 2, .multioutput = MultiOutput::uniform_average})),
             (std::sqrt(1.25 / 3) + 1.0) / 2));
  CHECK(near(number(m::r2_score(preds, targets, {.num_outputs = 2, .multioutput = MultiOutput::variance_weighted})),
             0.9382566585956417));
  CHECK(near(number(m::explained_variance(preds, targets, {.num_outputs = 2})), 0.9838709677419355));
  CHECK(same(m::r2_score(preds, targets, {.num_outputs = 2, .multioutput = MultiOutput::raw_values}),
             numbers({0.96543778801843316, 0.90816326530612246})));
}

TEST_CASE("regression: moments merged over random splits equal those of the whole", "[metrics]") {
  for (const std::int64_t num_outputs : {1, 3}) {
    const at::Tensor targets = at::randn({500, num_outputs}, at::kDouble).mul(3).add(100);
    const at::Tensor preds = targets + at::randn({500, num_outputs}, at::kDouble).mul(0.3);
    const auto shaped = [&](const at::Tensor& x) { return num_outputs == 1 ? x.squeeze(1) : x; };
    const danling::RunningSumsPtr sums = m::detail::running_moments(num_outputs);
    for (int trial = 0; trial < 5; ++trial) {
      at::Tensor total = at::zeros({num_outputs, m::detail::num_moments}, at::kDouble);
      at::Tensor on_device = total.clone();
      for (std::int64_t begin = 0; begin < 500;) {
        const std::int64_t length = std::min<std::int64_t>(500 - begin, at::randint(0, 90, {1}).item().toLong());
        const at::Tensor more =
            sums->of_batch(shaped(preds.narrow(0, begin, length)), shaped(targets.narrow(0, begin, length)));
        sums->merge(total, more);
        m::detail::merge_moments_on_device(on_device, more);
        begin += length;
      }
      CHECK(same(total, sums->of_batch(shaped(preds), shaped(targets)), 1e-12));
      CHECK(same(total, on_device, 1e-12));
      for (const danling::MetricFunc& metric : of_moments(num_outputs)) {
        INFO(metric.name);
        MetricState state;
        state.set(metric.sums[0], total);
        CHECK_FALSE(metric.preds_targets);
        CHECK(
            same(metric.compute(state).tensor(), metric.compute(MetricState(shaped(preds), shaped(targets))).tensor()));
      }
    }
  }
}

TEST_CASE("regression: a large mean beside a small spread loses nothing", "[metrics]") {
  const at::Tensor targets = at::randint(-1000, 1000, {3000}).to(at::kDouble).div(1024);
  const at::Tensor preds = targets + at::randint(-100, 100, {3000}).to(at::kDouble).div(1024);
  // Both sums are exact, so that the shifted data are the same data.
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, at::Tensor (*)(const at::Tensor&, const at::Tensor&)>>{
           {"r2", [](const at::Tensor& p, const at::Tensor& t) { return m::r2_score(p, t); }},
           {"explained_variance", [](const at::Tensor& p, const at::Tensor& t) { return m::explained_variance(p, t); }},
           {"pearson", [](const at::Tensor& p, const at::Tensor& t) { return m::pearson(p, t); }},
           {"concordance", [](const at::Tensor& p, const at::Tensor& t) { return m::concordance(p, t); }},
           {"mse", [](const at::Tensor& p, const at::Tensor& t) { return m::mse(p, t); }}}) {
    INFO(name);
    CHECK(near(number(value(preds + 1e8, targets + 1e8)), number(value(preds, targets)), 1e-10));
  }
}

TEST_CASE("regression: mean errors go on as sums", "[metrics]") {
  const MetricState state(numbers({1, 2, 3}), numbers({1, 4, nan_value}));
  for (const danling::MetricFunc& metric : {m::mae(), m::mse(), m::mape()}) {
    INFO(metric.name);
    using Sum = danling::MetricValue::Sum<double, std::int64_t>;
    const danling::MetricValue value = metric.compute(state);
    REQUIRE(std::holds_alternative<Sum>(value.get()));
    CHECK(std::get<Sum>(value.get()).n == 2);
    CHECK(metric.higher_is_better == false);
  }
  CHECK(m::mse().compute(state).number() == 2.0);
}

TEST_CASE("regression: samples with a nan target do not count", "[metrics]") {
  const at::Tensor preds = at::rand({40, 2}, at::kDouble);
  const at::Tensor targets = at::rand({40, 2}, at::kDouble);
  const at::Tensor holed = targets.clone();
  holed[3][0].fill_(nan_value);
  holed[7].fill_(nan_value);
  const at::Tensor kept = holed.isnan().any(1).logical_not().nonzero().squeeze(1);
  for (const danling::MetricFunc& metric : of_moments(2)) {
    INFO(metric.name);
    CHECK(same(metric.compute(MetricState(preds, holed)).tensor(),
               metric.compute(MetricState(preds.index_select(0, kept), targets.index_select(0, kept))).tensor()));
  }
}

TEST_CASE("regression: the device's path equals the host's", "[metrics]") {
  for (const std::int64_t num_outputs : {1, 3}) {
    for (const std::int64_t size : {0, 1, 2, 300}) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        INFO(size << " samples of " << num_outputs);
        const at::Tensor preds = at::randn({size, num_outputs}, type);
        const at::Tensor targets = at::randn({size, num_outputs}, type).add(5);
        targets.masked_fill_(at::rand({size, num_outputs}).lt(0.1), nan_value);
        CHECK(same(m::detail::moments_on_device(preds, targets, num_outputs),
                   m::detail::moments_on_host(preds, targets, num_outputs), 1e-9));
      }
    }
  }
  // A constant has no spread at all, whichever sample counts first.
  const at::Tensor constant = at::full({10, 1}, 0.1, at::kDouble);
  const at::Tensor targets = constant.clone();
  targets[0][0].fill_(nan_value);
  for (const at::Tensor& moments :
       {m::detail::moments_on_device(constant, targets, 1), m::detail::moments_on_host(constant, targets, 1)}) {
    CHECK(moments.narrow(1, 4, 4).eq(0).all().item().toBool());
  }
}

TEST_CASE("regression: constant, single, missing and nan data", "[metrics]") {
  const at::Tensor constant = at::full({7}, 0.1, at::kDouble);
  const at::Tensor other = at::rand({7}, at::kDouble);
  CHECK(number(m::r2_score(other, constant)) == 0.0);
  CHECK(number(m::r2_score(constant, constant)) == 1.0);
  CHECK(number(m::explained_variance(other, constant)) == 0.0);
  CHECK(number(m::explained_variance(constant + 3, constant)) == 1.0);
  CHECK(std::isnan(number(m::r2_score(numbers({1}), numbers({1})))));
  CHECK(number(m::explained_variance(numbers({1}), numbers({2}))) == 1.0);
  CHECK(number(m::mse(numbers({1}), numbers({3}))) == 4.0);
  for (const danling::MetricFunc& metric : of_moments(1)) {
    INFO(metric.name);
    CHECK(std::isnan(metric.compute(MetricState(numbers({}), numbers({}))).number()));
    CHECK(std::isnan(metric.compute(MetricState(numbers({1, 2}), numbers({nan_value, nan_value}))).number()));
    CHECK(std::isnan(metric.compute(MetricState(numbers({1, nan_value, 3}), numbers({1, 2, 3}))).number()));
  }
  // A target near 0 is divided by no less than 1.17e-6.
  CHECK(near(number(m::mape(numbers({1.17e-6}), numbers({0}))), 1.0));
}

TEST_CASE("regression: work that is split over threads gives the same bits", "[metrics]") {
  const at::Tensor preds = at::randn({200000});
  const at::Tensor targets = at::randn({200000});
  const at::Tensor one = m::detail::moments_on_host(preds, targets, 1);
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  CHECK(one.equal(m::detail::moments_on_host(preds, targets, 1)));
  at::set_num_threads(before);
}

TEST_CASE("regression: what does not fit is told", "[metrics]") {
  CHECK(error_of<MetricError>([] { m::mse({.num_outputs = 0}); }) ==
        "[metrics.regression] expected a positive num_outputs, got 0");
  CHECK(error_of<MetricError>([] { m::mae({.num_outputs = 2, .multioutput = MultiOutput::variance_weighted}); }) ==
        "[metrics.mae] expected multioutput raw_values or uniform_average, got variance_weighted");
  CHECK(error_of<MetricError>([] { m::mse({.num_outputs = 2}).compute(MetricState(numbers({1}), numbers({1}))); }) ==
        "[metrics.regression] expected predictions and targets of shape [N, 2], got Double [1] and Double [1]");
  CHECK(m::parse_multi_output("variance_weighted") == MultiOutput::variance_weighted);
  CHECK(error_of<ConfigError>([] {
          m::parse_multi_output("raw");
        }).starts_with("[metrics.parse_multi_output] expected one of"));
}

TEST_CASE("regression: infinite predictions make errors inf and r2 -inf, on host, device and over batches",
          "[metrics]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor targets = numbers({3, 4, 5, 7});
  const auto check = [&](const danling::MetricFunc& metric, const at::Tensor& preds, const at::Tensor& known,
                         double expected) {
    INFO(metric.name << " of " << preds);
    const auto is = [&](const at::Tensor& sums) {
      MetricState state;
      state.set(metric.sums[0], sums);
      const double got = metric.compute(state).number();
      return std::isnan(expected) ? std::isnan(got) : got == expected;
    };
    CHECK(is(m::detail::moments_on_host(preds, known, 1)));
    CHECK(is(m::detail::moments_on_device(preds, known, 1)));
    for (const std::int64_t cut : {1, 2, 3}) {
      at::Tensor host = m::detail::moments_on_host(preds.slice(0, 0, cut), known.slice(0, 0, cut), 1);
      m::detail::merge_moments_on_host(host, m::detail::moments_on_host(preds.slice(0, cut), known.slice(0, cut), 1));
      CHECK(is(host));
      at::Tensor device = m::detail::moments_on_device(preds.slice(0, 0, cut), known.slice(0, 0, cut), 1);
      m::detail::merge_moments_on_device(device,
                                         m::detail::moments_on_device(preds.slice(0, cut), known.slice(0, cut), 1));
      CHECK(is(device));
    }
  };
  for (const at::Tensor& preds : {numbers({infinity, 4, 5, 7}), numbers({3, 4, -infinity, 7}),
                                  numbers({infinity, -infinity, 5, 6}), numbers({1, infinity, infinity, 2})}) {
    check(m::mae(), preds, targets, infinity);
    check(m::mse(), preds, targets, infinity);
    check(m::rmse(), preds, targets, infinity);
    check(m::mape(), preds, targets, infinity);
    check(m::r2_score(), preds, targets, -infinity);
    // As for other predictions of targets without spread.
    check(m::r2_score(), preds, numbers({2, 2, 2, 2}), 0.0);
    check(m::explained_variance(), preds, targets, nan_value);
  }
  for (const at::Tensor& preds : {numbers({nan_value, 4, 5, 7}), numbers({infinity, 4, 5, nan_value})}) {
    for (const auto& metric : {m::mae(), m::mse(), m::rmse(), m::mape(), m::r2_score()}) {
      check(metric, preds, targets, nan_value);
      check(metric, preds, numbers({2, 2, 2, 2}), nan_value);
    }
  }
}

TEST_CASE("regression: one infinite output leaves the others", "[metrics]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor preds = numbers({infinity, 1, 2, 4}).view({2, 2});
  const at::Tensor targets = numbers({1, 1, 2, 2}).view({2, 2});
  const auto by_output = m::mse(preds, targets, {.num_outputs = 2});
  CHECK(by_output.equal(numbers({infinity, 2})));
}

TEST_CASE("regression: predictions wider than the targets are not rounded to them", "[metrics]") {
  const at::Tensor targets = numbers({1, 2}).to(at::kHalf);
  CHECK(number(m::mae(numbers({100001, 2}), targets)) == 50000);
  CHECK(number(m::mae(numbers({1.0001, 2}).to(at::kFloat), targets)) == (static_cast<double>(1.0001F) - 1) / 2);
  CHECK(number(m::mae(numbers({99329, 2}).to(at::kBFloat16), targets)) > 49000);
  CHECK(number(m::mae(numbers({100001, 2}).to(at::kLong), targets)) == 50000);
  CHECK(number(m::mae(numbers({1.0001, 2}).to(at::kHalf), numbers({1, 2}))) ==
        (numbers({1.0001}).to(at::kHalf).to(at::kDouble).item<double>() - 1) / 2);
}

}  // namespace regression_tests
