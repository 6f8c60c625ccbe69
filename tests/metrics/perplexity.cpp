#include <danling/metrics/functional/perplexity.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>

namespace perplexity_tests {

namespace m = danling::metrics;
using danling::MetricError;
using danling::MetricState;
using danling_test::error_of;

double number(const at::Tensor& value) { return value.item().toDouble(); }
bool near(double a, double b, double tolerance = 1e-10) { return std::abs(a - b) <= tolerance * std::abs(b); }

double by_cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return std::exp(
      number(at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}).to(at::kDouble), target.reshape({-1}))));
}

TEST_CASE("perplexity: equal logits hesitate between all tokens", "[metrics]") {
  CHECK(near(number(m::perplexity(at::zeros({2, 3, 50}), at::randint(0, 50, {2, 3}))), 50.0, 1e-6));
  CHECK(near(number(m::perplexity(at::full({4, 7}, 1e4, at::kDouble), at::randint(0, 7, {4}))), 7.0));
}

TEST_CASE("perplexity: exp of the cross-entropy, for few scores and many", "[metrics]") {
  for (const std::int64_t vocabulary : {3, 700, 40000}) {
    const at::Tensor logits = at::randn({2, 9, vocabulary}, at::kDouble).mul(4);
    const at::Tensor target = at::randint(0, vocabulary, {2, 9});
    target[1][3].fill_(-100);
    const double expected = by_cross_entropy(logits, target);
    CHECK(near(number(m::perplexity(logits, target)), expected));
    CHECK(near(number(m::perplexity(logits.to(at::kFloat), target)), expected, 1e-5));
    CHECK(near(number(m::perplexity(logits.view({18, vocabulary}), target.view(-1))), expected));
    CHECK(near(number(m::perplexity(logits.transpose(0, 1), target.t())), expected));
    const at::Tensor half = logits.to(at::kBFloat16);
    CHECK(near(number(m::perplexity(half, target)), by_cross_entropy(half, target), 1e-5));
  }
}

TEST_CASE("perplexity: data that do not count, or are impossible", "[metrics]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK(std::isnan(number(m::perplexity(at::zeros({0, 5}), at::zeros({0}, at::kLong)))));
  CHECK(std::isnan(number(m::perplexity(at::zeros({2, 5}), at::full({2}, -100, at::kLong)))));
  CHECK(std::isnan(number(m::perplexity(at::full({1, 5}, std::nan("")), at::zeros({1}, at::kLong)))));
  const at::Tensor masked = at::zeros({1, 4}, at::kDouble);
  masked[0][0].fill_(-infinity);
  CHECK(number(m::perplexity(masked, at::zeros({1}, at::kLong))) == infinity);
  CHECK(near(number(m::perplexity(masked, at::full({1}, 2, at::kLong))), 3.0));
}

TEST_CASE("perplexity: sums of batches are the sums of all", "[metrics]") {
  const danling::MetricFunc metric = m::perplexity();
  const at::Tensor logits = at::randn({40, 30}, at::kDouble);
  const at::Tensor target = at::randint(0, 30, {40});
  at::Tensor total = metric.sums[0]->of_batch(logits.narrow(0, 0, 7), target.narrow(0, 0, 7));
  total += metric.sums[0]->of_batch(logits.narrow(0, 7, 33), target.narrow(0, 7, 33));
  MetricState state;
  state.set(metric.sums[0], total);
  CHECK(near(metric.compute(state).number(), by_cross_entropy(logits, target)));
  CHECK(metric.name == "perplexity");
  CHECK(metric.higher_is_better == false);
  CHECK_FALSE(metric.preds_targets);
}

TEST_CASE("perplexity: what does not fit is told", "[metrics]") {
  CHECK(error_of<MetricError>([] { m::perplexity(at::zeros({2, 5}), at::zeros({3}, at::kLong)); }) ==
        "[metrics.perplexity] expected logits [..., vocabulary] and integer targets [...], got Float [2, 5] and Long "
        "[3]");
  CHECK(error_of<MetricError>([] { m::perplexity(at::zeros({2, 5}), at::full({2}, 5, at::kLong)); }) ==
        "[metrics.perplexity] expected targets from 0 to 4, got 5 at position 0");
}

}  // namespace perplexity_tests
