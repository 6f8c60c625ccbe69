// Parameters and gradients that lie in the same memory.
#include <cmath>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/optim/clip.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/state/state.hpp>

#include <support/catch.hpp>

namespace {

namespace optim = danling::optim;

/// Two parameters whose gradients autograd left in one tensor's memory: of `a.view({2, 3}) + b.view({2, 3})`.
std::vector<at::Tensor> with_shared_gradients() {
  const auto a = at::zeros({6}).set_requires_grad(true);
  const auto b = at::zeros({6}).set_requires_grad(true);
  a.view({2, 3}).add(b.view({2, 3})).sub(1).square().sum().mul(-2).backward();
  REQUIRE(a.grad().const_data_ptr() == b.grad().const_data_ptr());
  REQUIRE(at::equal(a.grad(), at::full({6}, 4.0)));
  return {a, b};
}

TEST_CASE("clip_grad_norm, clip_grad_value: gradients in one memory are each scaled once", "[optim]") {
  auto params = with_shared_gradients();  // of norm 4 * sqrt(12)
  CHECK(optim::clip_grad_norm(params, std::sqrt(12)).item().toDouble() == Approx(4 * std::sqrt(12)));
  for (const auto& param : params) {
    CHECK(param.grad().sub(1).abs().max().item().toDouble() < 1e-6);
  }
  params = with_shared_gradients();
  optim::clip_grad_value(params, 3);
  CHECK(at::equal(params[0].grad(), at::full({6}, 3.0)));
  CHECK(at::equal(params[1].grad(), at::full({6}, 3.0)));
}

TEST_CASE("Optimizer: gradients in one memory are each divided once, also over groups", "[optim]") {
  for (const bool fused : {true, false}) {
    for (const bool groups : {true, false}) {
      CAPTURE(fused, groups);
      const auto params = with_shared_gradients();
      const optim::OptimizerOptions options{.lr = 1, .fused = fused};
      optim::SGD optimizer({}, options);
      if (groups) {
        optimizer.add_param_group({params[0]}, options);
        optimizer.add_param_group({params[1]}, options);
      } else {
        optimizer.add_param_group(params, options);
      }
      optimizer.step(4);
      CHECK(at::equal(params[0].detach(), at::full({6}, -1.0)));
      CHECK(at::equal(params[1].detach(), at::full({6}, -1.0)));
    }
  }
}

TEST_CASE("Optimizer, clip: one tensor as the gradient of two parameters is divided and scaled once for each",
          "[optim]") {
  const auto a = at::zeros({6}).set_requires_grad(true);
  const auto b = at::zeros({6}).set_requires_grad(true);
  a.mutable_grad() = at::full({6}, 8.0);
  b.mutable_grad() = a.grad();
  optim::clip_grad_norm({a, b}, 4 * std::sqrt(12));
  CHECK(a.grad().sub(4).abs().max().item().toDouble() < 1e-5);
  CHECK(b.grad().sub(4).abs().max().item().toDouble() < 1e-5);
  a.mutable_grad() = at::full({6}, 8.0);
  b.mutable_grad() = a.grad();
  optim::sgd({a, b}, {.lr = 1})->step(4);
  CHECK(at::equal(a.detach(), at::full({6}, -2.0)));
  CHECK(at::equal(b.detach(), at::full({6}, -2.0)));
}

TEST_CASE("Optimizer, clip: a broadcast gradient is divided and scaled like a dense one", "[optim]") {
  const auto param = at::zeros({3, 4}).set_requires_grad(true);
  const auto optimizer = optim::sgd({param}, {.lr = 1});
  param.mutable_grad() = at::full({4}, 8.0).expand({3, 4});
  optimizer->step(4);
  CHECK(at::equal(param.detach(), at::full({3, 4}, -2.0)));
  param.mutable_grad() = at::full({4}, 8.0).expand({3, 4});
  optim::clip_grad_norm({param}, std::sqrt(12));
  CHECK(param.grad().sub(1).abs().max().item().toDouble() < 1e-6);
}

TEST_CASE("Optimizer: gradients that are parts of one buffer stay in it", "[optim]") {
  const at::Tensor bucket = at::full({10}, 4.0);
  std::vector<at::Tensor> params;
  for (const std::int64_t begin : {0, 5}) {
    params.push_back(at::zeros({5}).set_requires_grad(true));
    params.back().mutable_grad() = bucket.narrow(0, begin, 5);
  }
  optim::sgd(params)->step(2);
  optim::clip_grad_value(params, 1);
  CHECK(at::equal(bucket, at::ones({10})));
  CHECK(params[1].grad().is_alias_of(bucket));
}

TEST_CASE("Optimizer: parameters that overlap are updated one after the other", "[optim]") {
  // Of torch.optim.SGD(foreach=False) by hand: the middle is updated twice, the second time with its own momentum.
  for (const bool fused : {true, false}) {
    const at::Tensor memory = at::zeros({6});
    std::vector<at::Tensor> params;
    for (const std::int64_t begin : {0, 2}) {
      params.push_back(memory.narrow(0, begin, 4).detach().set_requires_grad(true));
      params.back().mutable_grad() = at::ones({4});
    }
    const auto optimizer = optim::sgd(params, {.lr = 1, .momentum = 0.5, .weight_decay = 0.5, .fused = fused});
    optimizer->step();
    CHECK(at::equal(memory, at::tensor({-1.0F, -1.0F, -1.5F, -1.5F, -1.0F, -1.0F})));
    const auto saved = danling::clone(optimizer->state_dict());
    optimizer->load_state_dict(saved);
    optimizer->step();
    // Alone: momentum 0.5 * 1 + (1 - 0.5) = 1. Both: 0.5 * 1 + (1 - 0.75) = 0.75, then 0.5 * 0.5 + (1 - 1.125) = 0.125.
    CHECK(at::equal(memory, at::tensor({-2.0F, -2.0F, -2.375F, -2.375F, -2.0F, -2.0F})));
  }
}

}  // namespace
