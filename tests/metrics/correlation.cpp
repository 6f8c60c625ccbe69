#include <danling/metrics/functional/correlation.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>

#include <metrics/functional/rank_correlation.hpp>

#include <support/error.hpp>

namespace correlation_tests {

namespace m = danling::metrics;
using danling::ConfigError;
using danling::MetricError;
using danling::MetricState;
using danling_test::error_of;
using m::KendallVariant;
using m::MultiOutput;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }
double number(const at::Tensor& value) { return value.item().toDouble(); }
bool near(double a, double b) { return std::abs(a - b) < 1e-12; }

// Kendall's tau from all pairs.
double tau_by_pairs(const at::Tensor& x, const at::Tensor& y, KendallVariant variant) {
  const at::Tensor dx = (x.unsqueeze(0) - x.unsqueeze(1)).sign();
  const at::Tensor dy = (y.unsqueeze(0) - y.unsqueeze(1)).sign();
  const double difference = number((dx * dy).sum()) / 2;
  const double unequal_x = number(dx.abs().sum()) / 2;
  const double unequal_y = number(dy.abs().sum()) / 2;
  if (variant == KendallVariant::a) {
    return difference / (number((dx * dy).abs().sum()) / 2);
  }
  if (variant == KendallVariant::b) {
    return difference / std::sqrt(unequal_x * unequal_y);
  }
  const auto distinct = [](const at::Tensor& values) {
    return number(values.unsqueeze(0).eq(values.unsqueeze(1)).tril(-1).any(1).logical_not().sum());
  };
  const double classes = std::min(distinct(x), distinct(y));
  const auto n = static_cast<double>(x.numel());
  return 2 * difference / (n * n * (classes - 1) / classes);
}

TEST_CASE("pearson, spearman, concordance: small examples", "[metrics]") {
  // torchmetrics' and SciPy's examples.
  CHECK(std::abs(number(m::pearson(numbers({2.5, 0.0, 2, 8}), numbers({3, -0.5, 2, 7}))) - 0.984869618448270) < 1e-12);
  CHECK(std::abs(number(m::concordance(numbers({2.5, 0.0, 2, 8}), numbers({3, -0.5, 2, 7}))) - 0.977734753146176) <
        1e-12);
  CHECK(near(number(m::spearman(numbers({1, 2, 3, 4, 5}), numbers({5, 6, 7, 8, 7}))), 0.8207826816681233));
  CHECK(near(number(m::pearson(numbers({1, 2, 3}), numbers({10, 20, 30}))), 1.0));
  CHECK(near(number(m::spearman(numbers({1, 2, 3}), numbers({30, 20, 1}))), -1.0));
}

TEST_CASE("kendall: the variants agree with a count of all pairs", "[metrics]") {
  // SciPy's example.
  CHECK(near(number(m::kendall(numbers({12, 2, 1, 12, 2}), numbers({1, 4, 7, 1, 0}))), -0.47140452079103173));
  for (const std::int64_t size : {2, 3, 10, 257}) {
    for (const double levels : {4.0, 1e9}) {
      const at::Tensor x = at::rand({size}, at::kDouble).mul(levels).floor();
      const at::Tensor y = at::rand({size}, at::kDouble).add(x / levels).mul(levels).floor();
      for (const KendallVariant variant : {KendallVariant::a, KendallVariant::b, KendallVariant::c}) {
        const double expected = tau_by_pairs(x, y, variant);
        const double value = number(m::kendall(x, y, {.variant = variant}));
        CHECK((near(value, expected) || (std::isnan(value) && std::isnan(expected))));
      }
    }
  }
}

TEST_CASE("correlation: constant, single, missing and nan data", "[metrics]") {
  const at::Tensor constant = at::full({9}, 0.1, at::kDouble);
  const at::Tensor other = at::rand({9}, at::kDouble);
  for (const auto& [preds, targets] : {std::pair(constant, other), std::pair(other, constant)}) {
    CHECK(std::isnan(number(m::pearson(preds, targets))));
    CHECK(std::isnan(number(m::concordance(preds, targets))));
    CHECK(number(m::spearman(preds, targets)) == 0.0);
    CHECK(std::isnan(number(m::kendall(preds, targets))));
    CHECK(std::isnan(number(m::kendall(preds, targets, {.variant = KendallVariant::c}))));
  }
  for (const danling::MetricFunc& metric : {m::pearson(), m::concordance(), m::spearman(), m::kendall()}) {
    INFO(metric.name);
    CHECK(metric.higher_is_better == true);
    CHECK(std::isnan(metric.compute(MetricState(numbers({}), numbers({}))).number()));
    CHECK(std::isnan(metric.compute(MetricState(numbers({1, nan_value, 3}), numbers({1, 2, 4}))).number()));
    const double holed = metric.compute(MetricState(numbers({1, 9, 3, 2}), numbers({1, nan_value, 4, 5}))).number();
    CHECK(holed == metric.compute(MetricState(numbers({1, 3, 2}), numbers({1, 4, 5}))).number());
  }
  CHECK(number(m::spearman(numbers({1}), numbers({2}))) == 0.0);
  CHECK(std::isnan(number(m::kendall(numbers({1}), numbers({2})))));
}

TEST_CASE("spearman: the device's path equals the host's", "[metrics]") {
  for (const std::int64_t size : {0, 1, 2, 200}) {
    for (const double levels : {5.0, 1e9}) {
      INFO(size << " samples, " << levels << " levels");
      const at::Tensor preds = at::rand({size, 3}, at::kDouble).mul(levels).floor();
      const at::Tensor targets = at::rand({size, 3}, at::kDouble).mul(levels).floor();
      if (size == 200) {
        targets[4][1].fill_(nan_value);
        preds[4].fill_(nan_value);
        preds[9][2].fill_(nan_value);
      }
      CHECK(m::detail::spearman_on_device(preds, targets, 3)
                .allclose(m::detail::spearman_on_host(preds, targets, 3), 1e-12, 1e-12, /*equal_nan=*/true));
    }
  }
}

TEST_CASE("correlation: several outputs, each alone or averaged", "[metrics]") {
  const at::Tensor preds = at::randn({60, 2}, at::kDouble);
  const at::Tensor targets = at::randn({60, 2}, at::kDouble).mul(numbers({1, 5}));
  const at::Tensor weights = targets.var(0, /*unbiased=*/false);
  const auto outputs = [&](std::int64_t k) {
    return std::pair(preds.select(1, k).contiguous(), targets.select(1, k).contiguous());
  };
  const auto check_metric = [&](auto value, const auto& raw, const auto& uniform, const auto& weighted) {
    const at::Tensor each = value(preds, targets, raw);
    for (const std::int64_t k : {0, 1}) {
      const auto [pred, target] = outputs(k);
      CHECK(near(number(each[k]), number(value(pred, target, {}))));
    }
    CHECK(near(number(value(preds, targets, uniform)), number(each.mean())));
    CHECK(near(number(value(preds, targets, weighted)), number((each * weights).sum() / weights.sum())));
  };
  using Options = m::RegressionOptions;
  using Value = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const Options&);
  for (const Value value :
       {static_cast<Value>(m::pearson), static_cast<Value>(m::concordance), static_cast<Value>(m::spearman)}) {
    check_metric(value, Options{2, MultiOutput::raw_values}, Options{2, MultiOutput::uniform_average},
                 Options{2, MultiOutput::variance_weighted});
  }
  using TauValue = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const m::KendallOptions&);
  check_metric(static_cast<TauValue>(m::kendall),
               m::KendallOptions{.num_outputs = 2, .multioutput = MultiOutput::raw_values},
               m::KendallOptions{.num_outputs = 2},
               m::KendallOptions{.num_outputs = 2, .multioutput = MultiOutput::variance_weighted});
}

TEST_CASE("correlation: what does not fit is told", "[metrics]") {
  CHECK(error_of<MetricError>([] { m::spearman({.num_outputs = 0}); }) ==
        "[metrics.spearman] expected a positive num_outputs, got 0");
  CHECK(error_of<MetricError>([] { m::kendall().compute(MetricState(at::rand({2, 2}), at::rand({2, 2}))); }) ==
        "[metrics.kendall] expected predictions and targets of shape [N], got Float [2, 2] and Float [2, 2]");
  CHECK(error_of<ConfigError>([] {
          m::parse_kendall_variant("d");
        }).starts_with("[metrics.parse_kendall_variant] expected one of a, b, c"));
}

}  // namespace correlation_tests
