// Optimizers of torch::optim through our interface.
#include <danling/optim/torch_adapter.hpp>

#include <memory>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <danling/optim/lr_scheduler.hpp>

#include <optim/golden.hpp>

#include <support/error.hpp>

namespace {

using namespace danling_test;
namespace optim = danling::optim;

std::shared_ptr<torch::optim::Optimizer> torch_case(const std::string& name, const std::vector<at::Tensor>& params) {
  if (name == "sgd_momentum") {
    return std::make_shared<torch::optim::SGD>(
        params, torch::optim::SGDOptions(0.05).momentum(0.9).dampening(0.3).weight_decay(0.1));
  }
  if (name == "adam_decay") {
    return std::make_shared<torch::optim::Adam>(
        params, torch::optim::AdamOptions(0.05).weight_decay(0.1).betas({0.8, 0.95}).eps(1e-4));
  }
  if (name == "adamw_decay") {
    return std::make_shared<torch::optim::AdamW>(
        params, torch::optim::AdamWOptions(0.05).weight_decay(0.3).betas({0.8, 0.95}).eps(1e-4));
  }
  if (name == "rmsprop") {
    return std::make_shared<torch::optim::RMSprop>(
        params, torch::optim::RMSpropOptions(0.05).momentum(0.5).centered(true).weight_decay(0.1));
  }
  REQUIRE(name == "adagrad");
  return std::make_shared<torch::optim::Adagrad>(
      params, torch::optim::AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.1).initial_accumulator_value(0.2));
}

TEST_CASE("adapt_torch_optimizer: states go to Python and back, and the numbers are those of torch.optim", "[optim]") {
  const auto& golden = optim_numbers()["optimizers"]["float32"];
  for (const auto& [name, expected] : golden["adapted"].items()) {
    CAPTURE(name);
    auto params = golden_params(golden["params"], at::kFloat);
    auto resumed_params = golden_params(expected["saved_params"], at::kFloat);
    const auto optimizer = optim::adapt_torch_optimizer(torch_case(name, params));
    const auto resumed = optim::adapt_torch_optimizer(torch_case(name, resumed_params));
    optimizer->param_groups()[0].names = {"weight", "bias", "late"};
    for (std::size_t step = 0; step < golden["grads"].size(); ++step) {
      if (step == 3) {
        check_same_state(optimizer->state_dict(), state_of(expected["state"]), "float32");
        resumed->load_state_dict(state_of(expected["state"]));
      }
      set_grads(params, golden["grads"][step]);
      optimizer->step();
      if (step >= 3) {
        set_grads(resumed_params, golden["grads"][step]);
        resumed->step();
      }
    }
    check_params(params, expected["params"], "float32");
    check_params(resumed_params, expected["params"], "float32");
  }
}

TEST_CASE("adapt_torch_optimizer: rates go both ways and the divisor divides the gradients", "[optim]") {
  at::Tensor param = at::ones({2}).set_requires_grad(true);
  const auto torch_sgd = std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{param}, 1.0);
  const auto optimizer = optim::adapt_torch_optimizer(torch_sgd);
  param.mutable_grad() = at::ones({2}).mul(8);
  optimizer->param_groups()[0].lr = 0.5;
  optimizer->step(8);
  CHECK(param[0].item().toDouble() == 0.5);
  CHECK(param.grad()[0].item().toDouble() == 1.0);
  CHECK(torch_sgd->param_groups()[0].options().get_lr() == 0.5);
  torch_sgd->param_groups()[0].options().set_lr(0.25);
  optimizer->step();
  CHECK(param[0].item().toDouble() == 0.25);
  CHECK(optimizer->param_groups()[0].lr == 0.25);
  optimizer->param_groups()[0].weight_decay = 2.0;
  optimizer->step();
  CHECK(param[0].item().toDouble() == 0.25 - 0.25 * (1 + 0.25 * 2));
  optim::LRScheduler scheduler(*optimizer, 10, {.type = "constant", .warmup_steps = 0, .cooldown_steps = 0});
  CHECK(optimizer->param_groups()[0].lr == 0.25);
  optimizer->zero_grad();
  CHECK_FALSE(param.grad().defined());
}

/// A kind that torch does not have.
class Sign final : public torch::optim::Optimizer {
 public:
  explicit Sign(std::vector<at::Tensor> params)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(params))},
                  std::make_unique<torch::optim::SGDOptions>(0.5)) {}
  at::Tensor step(LossClosure = nullptr) override {
    for (auto& param : param_groups()[0].params()) {
      param.sub_(param.grad().sign(), param_groups()[0].options().get_lr());
    }
    return {};
  }
};

TEST_CASE("adapt_torch_optimizer: other kinds train, but have no state to save; LBFGS is refused", "[optim]") {
  at::Tensor param = at::ones({2}).set_requires_grad(true);
  const auto optimizer = optim::adapt_torch_optimizer(std::make_shared<Sign>(std::vector<at::Tensor>{param}));
  param.mutable_grad() = at::ones({2}).mul(3);
  optimizer->step();
  CHECK(param[0].item().toDouble() == 0.5);
  CHECK(error_of<danling::StateError>([&] { optimizer->state_dict(); }) ==
        "[torch::optim.state_dict] expected one of SGD, Adam, AdamW, RMSprop, Adagrad, got a type whose state layout "
        "is unknown; derive from danling::optim::Optimizer");
  CHECK(error_of<danling::ConfigError>([&] {
          optim::adapt_torch_optimizer(std::make_shared<torch::optim::LBFGS>(std::vector<at::Tensor>{param}));
        }) == "[optim.adapt_torch_optimizer] expected an optimizer that steps without a closure, got LBFGS");
  CHECK(error_of<danling::ConfigError>([] { optim::adapt_torch_optimizer(nullptr); }) ==
        "[optim.adapt_torch_optimizer] expected an optimizer, got a null pointer");
}

TEST_CASE("adapt_torch_optimizer: what does not fit is refused and changes nothing", "[optim]") {
  at::Tensor param = at::ones({2}).set_requires_grad(true);
  const auto torch_adam = std::make_shared<torch::optim::Adam>(std::vector<at::Tensor>{param});
  const auto optimizer = optim::adapt_torch_optimizer(torch_adam);
  param.mutable_grad() = at::ones({2});
  optimizer->step();
  const danling::State before = danling::clone(optimizer->state_dict());
  danling::State broken = danling::clone(before);
  broken["state"][0]["exp_avg"] = at::ones({3});
  CHECK(error_of<danling::StateError>([&] { optimizer->load_state_dict(broken); }) ==
        "[torch::optim::Adam.load_state_dict] expected exp_avg of parameter 0 with shape [2], got [3]");
  broken = danling::clone(before);
  broken["param_groups"].list()[0]["maximize"] = true;
  CHECK(
      error_of<danling::StateError>([&] { optimizer->load_state_dict(broken); }) ==
      "[torch::optim::Adam.load_state_dict] expected maximize = false, the only value that torch::optim supports, got "
      "true");
  CHECK(danling::first_difference(optimizer->state_dict(), before).empty());
  torch_adam->add_param_group(torch::optim::OptimizerParamGroup({at::ones({1}).set_requires_grad(true)}));
  CHECK(error_of<danling::StateError>([&] { optimizer->step(); }) ==
        "[torch::optim::Adam.step] expected the parameter groups that were adapted, got others; adapt the optimizer "
        "again");
}

}  // namespace
