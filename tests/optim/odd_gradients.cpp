// Gradients and parameters whose memory or values are unusual: a pending negation, infinities, complex numbers.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/sgd.h>

#include <danling/optim/averaging.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/clip.hpp>
#include <danling/optim/grad_scaler.hpp>
#include <danling/optim/torch_adapter.hpp>

#include <support/error.hpp>

namespace odd_gradients_tests {
namespace {

namespace optim = danling::optim;

const std::vector<std::string>& element_types() {
  static const std::vector<std::string> types = {"sgd",     "adam",   "adamw",     "asgd",  "adadelta",
                                                 "adagrad", "adamax", "nadam",     "radam", "rprop",
                                                 "rmsprop", "lion",   "adafactor", "lamb"};
  return types;
}

std::vector<double> update(const std::string& type, const at::Tensor& start, const at::Tensor& grad, int steps) {
  const at::Tensor param = start.clone().set_requires_grad(true);
  const auto optimizer = optim::build_optimizer({type, {.lr = 0.125}}, {{"w", param}});
  for (int i = 0; i < steps; ++i) {
    param.mutable_grad() = grad;
    optimizer->step();
  }
  const at::Tensor out = param.detach().to(at::kDouble).contiguous();
  return {out.const_data_ptr<double>(), out.const_data_ptr<double>() + out.numel()};
}

TEST_CASE("optimizers: a gradient with a pending negation moves a parameter as its values say", "[optim]") {
  const at::Tensor start = at::tensor({1.0F, -2.0F, 0.5F});
  const at::Tensor values = at::tensor({-2.0F, 1.0F, 0.25F});
  const at::Tensor negated = at::imag(at::complex(at::zeros({3}), -values).conj());  // of stride 2
  const at::Tensor pending = at::_neg_view(-values);                                 // contiguous
  REQUIRE(pending.is_neg());
  REQUIRE(pending.is_contiguous());
  REQUIRE(at::allclose(pending, values));
  REQUIRE(at::allclose(negated, values));
  CHECK(update("sgd", start, pending, 1) == std::vector<double>{1.25, -2.125, 0.46875});
  for (const std::string& type : element_types()) {
    CAPTURE(type);
    const std::vector<double> expected = update(type, start, values, 3);
    const std::vector<double> of_view = update(type, start, pending, 3);
    const std::vector<double> of_strided = update(type, start, negated, 3);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(of_view[i] == Approx(expected[i]).epsilon(1e-5));
      CHECK(of_strided[i] == Approx(expected[i]).epsilon(1e-5));
    }
  }
}

// LibTorch's kernels over lists refuse to change such gradients: "fallback doesn't currently support mutable
// TensorLists".
TEST_CASE("clipping, unscaling, a divisor: gradients with a pending negation or conjugation have their values",
          "[optim]") {
  const at::Tensor values = at::tensor({-3.0F, 4.0F});
  const auto params_with = [&](const at::Tensor& grad) {
    const at::Tensor param = at::zeros_like(grad).set_requires_grad(true);
    param.mutable_grad() = grad;
    return std::vector{param};
  };
  const auto negated = [&] { return params_with(at::_neg_view(-values)); };
  const auto conjugated = [&] { return params_with(at::complex(values, -values).conj()); };
  const auto check = [](const std::vector<at::Tensor>& params, const at::Tensor& expected) {
    CHECK(at::allclose(params[0].grad(), expected));
  };

  auto params = negated();
  CHECK(optim::clip_grad_norm(params, 1.0).item<double>() == Approx(5));
  check(params, values / 5);
  params = negated();
  optim::clip_grad_value(params, 3.5);
  check(params, at::tensor({-3.0F, 3.5F}));
  params = negated();
  optim::GradScaler scaler(at::kCPU, {.init_scale = 4});
  CHECK(scaler.unscale(params).item<float>() == 0.0F);
  check(params, values / 4);

  params = conjugated();
  CHECK(optim::clip_grad_norm(params, 1.0).item<double>() == Approx(5 * std::sqrt(2.0)));
  check(params, at::complex(values, values) / (5 * std::sqrt(2.0)));

  params = negated();
  optim::adapt_torch_optimizer(std::make_shared<torch::optim::SGD>(params, torch::optim::SGDOptions(1.0)))->step(2.0);
  CHECK(at::allclose(params[0], values / -2));
}

TEST_CASE("optimizers: without weight decay, an infinite parameter with a zero gradient stays", "[optim]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor start = at::tensor({-infinity, 0.0}, at::kDouble).to(dtype);
    const at::Tensor grad = at::tensor({0.0, 1.0}, at::kDouble).to(dtype);
    for (const std::string type :
         {"sgd", "adam", "asgd", "adadelta", "adagrad", "adamax", "nadam", "radam", "rmsprop"}) {
      CAPTURE(type, dtype);
      const std::vector<double> moved = update(type, start, grad, 2);
      CHECK(moved[0] == -infinity);
      CHECK(moved[1] < 0);
    }
  }
}

// The values of PyTorch 2.13: step_size = lr * 1.2 after a first step of lr in both parts; sum starts with both parts.
TEST_CASE("optimizers: complex parameters start with their first value in both parts, as PyTorch's", "[optim]") {
  const at::Tensor start = at::complex(at::full({1}, 1.0), at::full({1}, 0.0)).to(at::kComplexDouble);
  const at::Tensor grad = at::complex(at::full({1}, 1.0), at::full({1}, 1.0)).to(at::kComplexDouble);
  const auto first_step = [&](const std::string& type, const optim::OptimizerOptions& options) {
    const at::Tensor param = start.clone().set_requires_grad(true);
    const auto optimizer = optim::build_optimizer({type, options}, {{"w", param}});
    param.mutable_grad() = grad;
    optimizer->step();
    return param.detach().item<c10::complex<double>>();
  };
  const auto rprop = first_step("rprop", {.lr = 0.1});
  CHECK(rprop.real() == Approx(0.9));
  CHECK(rprop.imag() == Approx(-0.1));
  optim::OptimizerOptions options{.lr = 0.1};
  options.initial_accumulator_value = 0.5;
  const auto adagrad = first_step("adagrad", options);
  CHECK(adagrad.real() == Approx(1 - 0.1 / std::sqrt(1.5)));  // lr * g / sqrt(0.5 + g * g)
  CHECK(adagrad.imag() == Approx(-0.1 / std::sqrt(1.5)));
}

TEST_CASE("adafactor: one NaN in a gradient of one dimension reaches no other element", "[optim]") {
  const at::Tensor grad = at::tensor({1.0F, std::numeric_limits<float>::quiet_NaN(), -1.0F});
  for (const bool fused : {true, false}) {
    CAPTURE(fused);
    const at::Tensor param = at::full({3}, 1.0F).set_requires_grad(true);
    const auto optimizer = optim::build_optimizer({"adafactor", {.lr = 0.1, .fused = fused}}, {{"w", param}});
    param.mutable_grad() = grad;
    optimizer->step();
    CHECK(param[0].item<float>() < 1);
    CHECK(std::isnan(param[1].item<float>()));
    CHECK(param[2].item<float>() > 1);
  }
}

TEST_CASE("clip_grad_norm, grad_norm: a norm beyond float32 is infinite, and the gradients are clipped", "[optim]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    CAPTURE(dtype);
    const at::Tensor param = at::zeros({4}, dtype).set_requires_grad(true);
    param.mutable_grad() = at::full({4}, 3e38, dtype);  // a norm of 6e38
    CHECK(std::isinf(optim::grad_norm({param}).item<double>()));
    optim::GradScale scale;
    CHECK(std::isinf(optim::clip_grad_norm({param}, 1.0, scale).item<double>()));
    CHECK(std::isinf(optim::clip_grad_norm({param}, 1.0).item<double>()));
    CHECK(param.grad()[0].item<double>() == Approx(0.5).epsilon(0.01));
  }
}

TEST_CASE("WeightAverage: weights with a pending negation are averaged by their values", "[optim]") {
  const at::Tensor weights = at::_neg_view(at::full({3}, 2.0F)).set_requires_grad(true);  // -2
  optim::WeightAverage average({{"w", weights}}, {{"w", weights}}, optim::EMAOptions{.decay = 0.5});
  average.update();
  average.update();
  CHECK(average.weights().map().at("w").tensor()[0].item<float>() == -2);
}

}  // namespace
}  // namespace odd_gradients_tests
