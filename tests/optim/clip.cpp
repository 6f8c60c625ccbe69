// Clipping against torch.nn.utils, and gradients that are not finite.
#include <danling/optim/clip.hpp>

#include <cmath>
#include <limits>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>

#include <danling/optim/sgd.hpp>

#include <optim/golden.hpp>
#include <optim/plan.hpp>

#include <support/error.hpp>

namespace {

using namespace danling_test;
namespace optim = danling::optim;

std::vector<at::Tensor> with_gradients(const Json& grads, at::ScalarType dtype) {
  std::vector<at::Tensor> params;
  for (const auto& shape : golden_shapes()) {
    params.push_back(at::zeros(shape, dtype).set_requires_grad(true));
  }
  set_grads(params, grads);
  params.push_back(at::zeros({2}).set_requires_grad(true));  // none
  return params;
}

void check_gradients(const std::vector<at::Tensor>& params, const Json& expected, const std::string& dtype) {
  std::vector<at::Tensor> grads;
  for (std::size_t i = 0; i < golden_shapes().size(); ++i) {
    grads.push_back(params[i].grad());
  }
  check_params(grads, expected, dtype);
}

TEST_CASE("clip_grad_norm, clip_grad_value: the numbers of torch.nn.utils", "[optim]") {
  for (const auto& [dtype, golden] : optim_numbers()["clipping"].items()) {
    for (const auto& expected : golden["limits"]) {
      const double limit = expected["limit"];
      CAPTURE(dtype, limit);
      auto params = with_gradients(golden["grads"], dtype_of(dtype));
      const at::Tensor norm = optim::clip_grad_norm(params, limit);
      const double epsilon = tolerance_of(dtype).relative;
      CHECK(norm.item().toDouble() == Approx(expected["norm"].get<double>()).epsilon(epsilon));
      check_gradients(params, expected["by_norm"], dtype);

      params = with_gradients(golden["grads"], dtype_of(dtype));
      optim::clip_grad_value(params, limit);
      check_gradients(params, expected["by_value"], dtype);

      // The scale that the optimizer divides by does not change the clipped norm.
      params = with_gradients(golden["grads"], dtype_of(dtype));
      for (std::size_t i = 0; i < golden_shapes().size(); ++i) {
        params[i].mutable_grad().mul_(8);
      }
      CHECK(optim::grad_norm(params, 8).item().toDouble() == Approx(expected["norm"].get<double>()).epsilon(epsilon));
      optim::clip_grad_norm(params, limit, 8);
      for (std::size_t i = 0; i < golden_shapes().size(); ++i) {
        params[i].mutable_grad().div_(8);
      }
      check_gradients(params, expected["by_norm"], dtype);
    }
  }
}

TEST_CASE("clip_grad_norm: gradients of several dtypes have one norm, and those within the limit keep their bits",
          "[optim]") {
  at::Tensor single = at::zeros({3}).set_requires_grad(true);
  at::Tensor doubled = at::zeros({4}, at::kDouble).set_requires_grad(true);
  single.mutable_grad() = at::full({3}, 2.0);
  doubled.mutable_grad() = at::full({4}, 1.0, at::kDouble);
  const std::vector<at::Tensor> params = {single, doubled};
  CHECK(optim::clip_grad_norm(params, 4.5).item().toDouble() == 4.0);
  CHECK(at::equal(single.grad(), at::full({3}, 2.0)));
  CHECK(optim::clip_grad_norm(params, 2.0).item().toDouble() == 4.0);
  CHECK(single.grad()[0].item().toDouble() == Approx(1.0));
  CHECK(doubled.grad()[0].item().toDouble() == Approx(0.5));
  optim::clip_grad_value(params, 0.75);
  CHECK(single.grad()[0].item().toDouble() == 0.75);
  CHECK(doubled.grad()[0].item().toDouble() == Approx(0.5));
}

TEST_CASE("clip: no gradients, limits out of range and sparse gradients", "[optim]") {
  at::Tensor param = at::zeros({2}).set_requires_grad(true);
  CHECK(optim::clip_grad_norm({param}, 1.0).item().toDouble() == 0);
  CHECK_FALSE(optim::has_nonfinite({param}));
  CHECK(error_of<danling::ConfigError>([&] { optim::clip_grad_norm({param}, 0); }) ==
        "[optim.clip_grad_norm] expected a limit above 0, got 0.0");
  CHECK(error_of<danling::ConfigError>([&] { optim::clip_grad_value({param}, -1); }) ==
        "[optim.clip_grad_value] expected a limit above 0, got -1.0");
  param.mutable_grad() = at::sparse_coo_tensor(at::zeros({1, 1}, at::kLong), at::ones({1}), {2});
  CHECK(error_of<danling::StateError>([&] { optim::clip_grad_norm({param}, 1); }) ==
        "[optim.clip_grad_norm] expected dense gradients, got a sparse one");
}

TEST_CASE("clip: parameters without elements count nothing, complex gradients have a norm and no largest value",
          "[optim]") {
  const at::Tensor empty = at::zeros({0, 2}).set_requires_grad(true);
  const at::Tensor complex = at::zeros({2}, at::kComplexFloat).set_requires_grad(true);
  empty.mutable_grad() = at::zeros({0, 2});
  complex.mutable_grad() = at::full({2}, c10::complex<double>(3, 4), at::kComplexFloat);
  CHECK(optim::clip_grad_norm({empty, complex}, 100).item().toDouble() == Approx(std::sqrt(50)));
  CHECK_FALSE(optim::has_nonfinite({empty}));
  CHECK_FALSE(optim::has_nonfinite({empty, complex}));
  optim::clip_grad_value({empty}, 1);
  CHECK(error_of<danling::StateError>([&] { optim::clip_grad_value({complex}, 1); }) ==
        "[optim.clip_grad_value] expected real gradients, got complex ones, which have no order; use clip_grad_norm");
}

TEST_CASE("has_nonfinite, clip_grad_norm: any position in any dtype and size", "[optim][fused]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t size : {1, 7, 16, 33, 64, 70}) {
      CAPTURE(c10::toString(dtype), size);
      const at::Tensor param = at::zeros({size}, dtype).set_requires_grad(true);
      // Squares of these do not fit float16.
      param.mutable_grad() = at::full({size}, 1024, dtype);
      CHECK(optim::grad_norm({param}).item().toDouble() ==
            Approx(1024 * std::sqrt(static_cast<double>(size))).epsilon(1e-6));
      CHECK_FALSE(optim::has_nonfinite({param}));
      for (std::int64_t i = 0; i < size; ++i) {
        param.mutable_grad() = at::full({size}, 1024, dtype);
        param.mutable_grad()[i].fill_(std::numeric_limits<double>::quiet_NaN());
        CHECK(optim::has_nonfinite({param}));
      }
    }
  }
}

TEST_CASE("has_nonfinite: finds every infinity and NaN, and does not take large numbers for one", "[optim]") {
  at::Tensor first = at::zeros({3}).set_requires_grad(true);
  at::Tensor second = at::zeros({2, 2}, at::kBFloat16).set_requires_grad(true);
  const std::vector<at::Tensor> params = {first, second};
  // The squares of these overflow.
  first.mutable_grad() = at::full({3}, 3e38);
  second.mutable_grad() = at::full({2, 2}, -3e38, at::kBFloat16);
  CHECK_FALSE(optim::has_nonfinite(params));
  CHECK(optim::nonfinite_flag(params).scalar_type() == at::kFloat);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(bad);
    first.mutable_grad() = at::ones({3});
    second.mutable_grad() = at::ones({2, 2}, at::kBFloat16);
    CHECK_FALSE(optim::has_nonfinite(params));
    second.mutable_grad()[1][0].fill_(bad);
    CHECK(optim::has_nonfinite(params));
    second.mutable_grad()[1][0].fill_(1);
    first.mutable_grad()[2].fill_(bad);
    CHECK(optim::nonfinite_flag(params).item().toDouble() == 1);
  }
}

TEST_CASE("clip_grad_norm: the factor in a scale gives the update of clipped gradients, in one pass", "[optim]") {
  // Gradients 6 and 8 have the norm 10; divided by 2 it is 5, of which a limit of 1 leaves a fifth: steps 0.6 and 0.8.
  using Clip = at::Tensor (*)(const std::vector<at::Tensor>&, double, optim::GradScale&);
  const std::pair<Clip, void (*)(optim::Optimizer&, const optim::GradScale&)> ways[] = {
      {static_cast<Clip>(&optim::clip_grad_norm), [](auto& optimizer, const auto& scale) { optimizer.step(scale); }},
      {&optim::detail::clip_on_device, &optim::detail::step_on_device}};
  for (const auto& [clip, step] : ways) {
    for (const bool scaled : {false, true}) {
      std::vector<at::Tensor> params;
      for (const double grad : {6.0, 8.0}) {
        params.push_back(at::zeros({1}, at::kDouble).set_requires_grad(true));
        params.back().mutable_grad() = at::full({1}, grad, at::kDouble);
      }
      optim::SGD optimizer(params, {.lr = 1.0});
      const at::Tensor two = at::full({}, 2.0, at::kDouble);
      optim::GradScale scale{.divisor = scaled ? 1.0 : 2.0, .scale = scaled ? two : at::Tensor()};
      CHECK(clip(params, 1.0, scale).item().toDouble() == 5.0);
      CHECK(params[0].grad().item().toDouble() == 6.0);
      step(optimizer, scale);
      CHECK(params[0].item().toDouble() == Approx(-0.6).epsilon(1e-6));
      CHECK(params[1].item().toDouble() == Approx(-0.8).epsilon(1e-6));
      CHECK(two.item().toDouble() == 2.0);

      // Within the limit nothing changes; a norm that is not finite updates nothing.
      params[0].mutable_grad() = at::full({1}, 6.0, at::kDouble);
      params[1].mutable_grad() = at::full({1}, 8.0, at::kDouble);
      optim::GradScale wide{.divisor = 2.0};
      CHECK(clip(params, 50.0, wide).item().toDouble() == 5.0);
      step(optimizer, wide);
      CHECK(params[0].item().toDouble() == Approx(-3.6).epsilon(1e-6));
      params[0].mutable_grad() = at::full({1}, std::numeric_limits<double>::infinity(), at::kDouble);
      params[1].mutable_grad() = at::full({1}, 8.0, at::kDouble);
      optim::GradScale bad{.divisor = 2.0};
      clip(params, 1.0, bad);
      CHECK(bad.found_inf.item().toDouble() == 1.0);
      step(optimizer, bad);
      CHECK(params[0].item().toDouble() == Approx(-3.6).epsilon(1e-6));
      CHECK(params[1].item().toDouble() == Approx(-4.8).epsilon(1e-6));
    }
  }
}

}  // namespace
