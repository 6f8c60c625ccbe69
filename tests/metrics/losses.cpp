#include <danling/metrics/losses.hpp>

#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/loss.h>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace losses_test {

using danling::BatchLosses;
using danling::Loss;
using danling::Losses;
using danling::MetricError;
using danling::MetricValue;
using danling_test::error_of;

std::vector<double> pair_of(const danling::Result& result, std::string_view name) {
  return std::get<std::vector<double>>(*result.find(name));
}

at::Tensor row(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

/// One value per sample, with a weight that may change.
struct Distance : Loss<danling::PredictionBatch> {
  explicit Distance(double initial) : factor(initial) {}
  double weight() const override { return factor; }
  MetricValue compute(const danling::PredictionBatch& batch) override {
    return batch.prediction.sub(batch.target).abs();
  }
  double factor;
};

TEST_CASE("Losses: the weighted sum carries the gradient, pairs report weight and raw value", "[metrics]") {
  const auto distance = std::make_shared<Distance>(0.5);
  Losses losses({{"mse", torch::nn::MSELoss(), 2.0},
                 {"distance", distance},
                 {"watched", [](const at::Tensor& p, const at::Tensor& t) { return at::l1_loss(p, t); }, 0.0}});
  at::Tensor prediction = row({1, 2, 4}).requires_grad_();
  const at::Tensor target = row({0, 2, 1});
  const at::Tensor total = losses(prediction, target);
  // mse 10/3, distance 4/3.
  CHECK(total.item().toDouble() == Approx(2 * 10.0 / 3 + 0.5 * 4.0 / 3).epsilon(1e-14));
  total.backward();
  // 2 * 2 d / 3 + 0.5 sign(d) / 3
  CHECK(prediction.grad().allclose(row({4.0 / 3 + 0.5 / 3, 0, 4.0 + 0.5 / 3})));
  CHECK(pair_of(losses.average(), "mse")[0] == 2.0);
  CHECK(pair_of(losses.average(), "mse")[1] == Approx(10.0 / 3).epsilon(1e-14));
  CHECK(pair_of(losses.value(), "distance") == std::vector<double>{0.5, 4.0 / 3});
  CHECK(pair_of(losses.value(), "watched") == std::vector<double>{0.0, 4.0 / 3});
  CHECK(losses.higher_is_better("mse") == false);
  CHECK(losses.text(2) ==
        "mse: [2.00, 3.33] ([2.00, 3.33])\tdistance: [0.50, 1.33] ([0.50, 1.33])\t"
        "watched: [0.00, 1.33] ([0.00, 1.33])");

  // Raw values are averaged over samples, regardless of the weight at that time.
  distance->factor = 3.0;
  losses(row({5}), row({1}));
  CHECK(pair_of(losses.average(), "distance") == std::vector<double>{3.0, 2.0});
  CHECK(*losses.count().number("mse") == 4);
  losses.reset();
  CHECK(*losses.count().number("mse") == 0);
}

TEST_CASE("Losses: nothing that they keep holds on to a graph, and values per sample of nothing give no nan",
          "[metrics]") {
  Losses losses({{"distance", std::make_shared<Distance>(1.0)}});
  at::Tensor prediction = at::zeros({0}, at::kDouble).requires_grad_();
  const at::Tensor nothing = losses(prediction, at::zeros({0}, at::kDouble));
  CHECK(nothing.item().toDouble() == 0);
  nothing.backward();
  CHECK(losses.at("distance").count() == 0);
  at::Tensor some = row({1, 2}).requires_grad_();
  const auto before = some.use_count();
  static_cast<void>(losses(some, row({0, 0})));
  CHECK(some.use_count() == before);
  CHECK_FALSE(losses.at("distance").average_tensor().requires_grad());
}

TEST_CASE("Losses: sums over valid items are means in the total", "[metrics]") {
  const auto valid = [](const at::Tensor& p, const at::Tensor& t) {
    const at::Tensor counted = t.ge(0);
    return MetricValue::sum(p.mul(counted).sum(), counted.sum());
  };
  Losses losses({{"valid", valid}});
  CHECK(losses(row({1, 2, 6}), row({1, -1, 1})).item().toDouble() == 3.5);
  CHECK(losses(row({1}), row({-1})).item().toDouble() == 0);
  CHECK(pair_of(losses.average(), "valid")[1] == 3.5);
  CHECK(losses.at("valid").count() == 2);
}

TEST_CASE("Losses: what cannot be a set of losses is refused", "[metrics]") {
  CHECK(error_of<MetricError>([] { Losses(std::vector<Losses::Entry>{}); }) ==
        "[losses.create] expected at least one loss, got none");
  CHECK(error_of<MetricError>([] { Losses({{"a", torch::nn::MSELoss()}, {"a", torch::nn::L1Loss()}}); }) ==
        "[meters.add] expected a new name, got 'a', which is taken");
  CHECK(error_of<MetricError>([] { Losses({{"a", std::shared_ptr<Distance>()}}); }) ==
        "[dataset_metric.create] expected a metric, got none");
  Losses undefined({{"a", [](const at::Tensor&, const at::Tensor&) { return at::Tensor(); }}});
  CHECK(error_of<MetricError>([&] { undefined(row({1}), row({1})); }) ==
        "[losses.compute] expected a loss, got an undefined tensor");
}

TEST_CASE("Losses: modules are found, so that their weights can move", "[metrics]") {
  const torch::nn::CrossEntropyLoss entropy(torch::nn::CrossEntropyLossOptions().weight(row({1, 2})));
  Losses losses({{"ce", entropy},
                 {"mse", std::make_shared<torch::nn::MSELossImpl>()},
                 {"distance", std::make_shared<Distance>(1.0)}});
  const auto modules = losses.modules();
  REQUIRE(modules.size() == 2);
  CHECK(modules[0].get() == entropy.get());
}

/// A user's own batch.
struct Pair {
  at::Tensor a, b;
  std::int64_t size() const { return a.size(0); }
};
struct Gap : Loss<Pair> {
  MetricValue compute(const Pair& batch) override { return at::mse_loss(batch.a, batch.b); }
};

TEST_CASE("BatchLosses: work over a batch type of the user's own, over ranks, with their state", "[metrics]") {
  const auto texts = danling_test::run_ranks(2, [](const danling::Group& group) {
    BatchLosses<Pair> losses({{"gap", std::make_shared<Gap>()}});
    Pair batch{row({1, 2}).requires_grad_(), row({0, 0})};
    if (group.rank() == 1) {
      batch = {row({3}).requires_grad_(), row({0})};
    }
    losses(batch).backward();
    danling_test::expect(batch.a.grad().defined(), "a gradient");
    BatchLosses<Pair> restored({{"gap", std::make_shared<Gap>()}});
    restored.load_state_dict(losses.state_dict());
    restored.synchronize(group);
    return restored.average().text(6) + " " + danling::to_text(*restored.count().number("gap"));
  });
  // (1 + 4 + 9) / 3
  danling_test::check_ranks(texts, texts[0]);
  CHECK_THAT(texts[0], ContainsSubstring("4.666667") && ContainsSubstring("3.0"));
}

TEST_CASE("Losses: weights that are not finite and empty names are refused", "[metrics]") {
  for (const double weight : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    CHECK_THAT(error_of<MetricError>([&] { Losses({{"a", torch::nn::MSELoss(), weight}}); }),
               ContainsSubstring("[losses.weight] expected a finite weight of 'a', got "));
  }
  CHECK(error_of<MetricError>([] { Losses({{"", torch::nn::MSELoss()}}); }) ==
        "[losses.create] expected a loss with a name, got one without");
  const auto distance = std::make_shared<Distance>(1.0);
  Losses losses({{"distance", distance}});
  distance->factor = HUGE_VAL;
  CHECK(error_of<MetricError>([&] { losses(row({1}), row({1})); }) ==
        "[losses.weight] expected a finite weight of 'distance', got inf");
  CHECK(*losses.count().number("distance") == 0);
}

TEST_CASE("Losses: a sum of weights that are all 0 is of the losses and gives gradients of 0", "[metrics]") {
  const auto distance = std::make_shared<Distance>(0.0);
  Losses losses({{"distance", distance}, {"mse", torch::nn::MSELoss(), 0.0}});
  at::Tensor prediction = row({1, 5}).requires_grad_();
  const at::Tensor total = losses(prediction, row({0, 0}));
  CHECK(total.item().toDouble() == 0);
  CHECK(total.scalar_type() == at::kDouble);
  total.backward();
  CHECK(prediction.grad().equal(row({0, 0})));
  // A loss of weight 0 adds nothing, even if it is nan.
  Losses mixed({{"watched", [](const at::Tensor& p, const at::Tensor&) { return p.sum().mul(NAN); }, 0.0},
                {"mse", torch::nn::MSELoss()}});
  CHECK(mixed(row({1, 1}), row({0, 0})).item().toDouble() == 1);
}

}  // namespace losses_test
