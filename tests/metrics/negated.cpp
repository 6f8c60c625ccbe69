// Predictions with a pending negation, as the imaginary part of a conjugate has it: contiguous, but their memory holds
// the opposite numbers.
#include <functional>
#include <string>
#include <vector>

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/functional.hpp>

#include <support/error.hpp>

namespace negated_tests {
namespace {

namespace m = danling::metrics;
using danling_test::error_of;

struct Case {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> value;
};

void check_equal(const at::Tensor& values, const std::vector<Case>& cases) {
  const at::Tensor pending = at::_neg_view(-values);
  REQUIRE(pending.is_neg());
  REQUIRE(pending.is_contiguous());
  for (const Case& metric : cases) {
    CAPTURE(metric.name, c10::toString(values.scalar_type()));
    CHECK(metric.value(pending).equal(metric.value(values)));
  }
}

TEST_CASE("metrics: scores of classes with a pending negation count by their values", "[metrics]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor target = at::randint(0, 5, {40});
    check_equal(at::randn({40, 5}).to(dtype),
                {{"accuracy", [&](const at::Tensor& p) { return m::accuracy(p, target, {.num_classes = 5}); }},
                 {"top 2", [&](const at::Tensor& p) { return m::accuracy(p, target, {.num_classes = 5, .top_k = 2}); }},
                 {"confusion", [&](const at::Tensor& p) { return m::confusion_matrix(p, target, {.num_classes = 5}); }},
                 {"perplexity", [&](const at::Tensor& p) { return m::perplexity(p, target); }}});
  }
}

TEST_CASE("metrics: binary scores with a pending negation count by their values", "[metrics]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor target = at::randint(0, 2, {40});
    target[0].fill_(0);
    target[1].fill_(1);
    check_equal(at::randn({40}).to(dtype), {{"accuracy", [&](const at::Tensor& p) { return m::accuracy(p, target); }},
                                            {"auroc", [&](const at::Tensor& p) { return m::auroc(p, target); }},
                                            {"log_loss", [&](const at::Tensor& p) { return m::log_loss(p, target); }}});
  }
  // log(1 + exp(0.75))
  const at::Tensor logit = at::_neg_view(at::tensor({0.75F}));
  CHECK(m::log_loss(logit, at::tensor({1L})).item<double>() == Approx(1.1369).epsilon(1e-4));
}

TEST_CASE("metrics: regressions and meters read numbers with a pending negation by their values", "[metrics]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor target = at::randn({40});
    check_equal(at::randn({40}).to(dtype), {{"mae", [&](const at::Tensor& p) { return m::mae(p, target); }},
                                            {"mse", [&](const at::Tensor& p) { return m::mse(p, target); }},
                                            {"r2", [&](const at::Tensor& p) { return m::r2_score(p, target); }},
                                            {"pearson", [&](const at::Tensor& p) { return m::pearson(p, target); }},
                                            {"spearman", [&](const at::Tensor& p) { return m::spearman(p, target); }},
                                            {"kendall", [&](const at::Tensor& p) { return m::kendall(p, target); }}});
  }
  danling::AverageMeter meter;
  meter.update(at::_neg_view(at::tensor(2.5)));
  CHECK(meter.avg() == -2.5);
}

}  // namespace
}  // namespace negated_tests
