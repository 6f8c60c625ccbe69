// Options of optimizers: ranges, and the momentum that schedules cycle.
#include <utility>

#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/muon.hpp>
#include <danling/optim/sgd.hpp>

#include <support/error.hpp>

namespace optimizer_options {
namespace {

namespace optim = danling::optim;
using danling::ConfigError;
using danling_test::error_of;
using optim::OptimizerSpec;

TEST_CASE("Optimizers: options out of range are refused", "[optim]") {
  const at::Tensor param = at::zeros({3}).set_requires_grad(true);
  const auto message = [&](const OptimizerSpec& spec) {
    return error_of<ConfigError>([&] { optim::build_optimizer(spec, {{"p", param}}); });
  };
  CHECK(message({"rprop", {.etas = {{1.5, 2}}}}) == "[Rprop.options] expected etas below and above 1, got 1.5, 2.0");
  CHECK(message({"rprop", {.step_sizes = {{2, 1}}}}) ==
        "[Rprop.options] expected step_sizes in ascending order, got 2.0, 1.0");
  CHECK(message({"adadelta", {.rho = 1.5}}) == "[Adadelta.options] expected rho from 0 to 1, got 1.5");
  CHECK(message({"lion", {.betas = {{0.9, 1}}}}) == "[Lion.options] expected betas from 0 to below 1, got 1.0");
  CHECK(message({"adamw", {.decoupled_weight_decay = false}}) ==
        "[AdamW.options] expected decoupled_weight_decay = true, got false; use Adam");
  CHECK(message({"sgd", {.master_weights = true, .stochastic_rounding = true}}) ==
        "[SGD.options] expected one of master_weights and stochastic_rounding, got both");
}

TEST_CASE("Optimizers: momentum is what schedules cycle", "[optim]") {
  const at::Tensor param = at::zeros({3}).set_requires_grad(true);
  optim::AdamW adamw({param}, {.betas = {{0.8, 0.99}}});
  CHECK(adamw.momentum(0) == 0.8);
  adamw.set_momentum(0, 0.9);
  CHECK(*adamw.options().betas == std::pair(0.9, 0.99));
  optim::SGD sgd({param}, {.momentum = 0.5});
  sgd.set_momentum(0, 0.0);
  CHECK(sgd.momentum(0) == 0.0);
  const auto refused = [](optim::Optimizer& optimizer, double value) {
    return error_of<danling::ConfigError>([&] { optimizer.set_momentum(0, value); });
  };
  CHECK(refused(adamw, 1.0) == "[AdamW.options] expected betas from 0 to below 1, got 1.0");
  CHECK(refused(sgd, -0.5) == "[SGD.options] expected momentum to be 0 or more, got -0.5");
  optim::Muon muon({at::zeros({3, 3}).set_requires_grad(true)});
  CHECK(refused(muon, -0.5) == "[Muon.options] expected momentum to be 0 or more, got -0.5");
  CHECK(adamw.momentum(0) == 0.9);
  CHECK(sgd.momentum(0) == 0.0);
  const auto adagrad = optim::build_optimizer({"adagrad"}, {{"p", param}});
  CHECK_FALSE(adagrad->momentum(0).has_value());
  CHECK(error_of<danling::StateError>([&] { adagrad->set_momentum(0, 0.5); }) ==
        "[Adagrad.set_momentum] expected an optimizer with a momentum or betas, got 0.5 for one that has neither");
}

}  // namespace
}  // namespace optimizer_options
