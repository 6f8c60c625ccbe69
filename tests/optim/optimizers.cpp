// SGD, Adam and AdamW against torch.optim, and the conditions for the fused kernels.
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>

#include <optim/golden.hpp>

#include <support/error.hpp>

namespace {

using namespace danling_test;
namespace optim = danling::optim;
using danling::State;

constexpr std::size_t saved_at = 3;

const std::vector<std::string> parameter_names = {"weight", "bias", "late"};

/// The optimizer of a case of the golden script.
std::shared_ptr<optim::Optimizer> make_case(const std::string& name, std::vector<at::Tensor> params, bool fused) {
  const auto sgd = [&](optim::OptimizerOptions options) {
    options.fused = fused;
    return std::make_shared<optim::SGD>(params, options, parameter_names);
  };
  const auto adam = [&](optim::OptimizerOptions options) {
    options.fused = fused;
    return std::make_shared<optim::Adam>(params, options, parameter_names);
  };
  const auto adamw = [&](optim::OptimizerOptions options) {
    options.fused = fused;
    return std::make_shared<optim::AdamW>(params, options, parameter_names);
  };
  if (name == "sgd") {
    return sgd({.lr = 0.05});
  }
  if (name == "sgd_decay") {
    return sgd({.lr = 0.05, .weight_decay = 0.1, .maximize = true});
  }
  if (name == "sgd_momentum") {
    return sgd({.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1});
  }
  if (name == "sgd_nesterov") {
    return sgd({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  }
  if (name == "sgd_maximize") {
    return sgd({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .maximize = true});
  }
  if (name == "adam") {
    return adam({.lr = 0.05});
  }
  if (name == "adam_decay") {
    return adam({.lr = 0.05, .betas = {{0.8, 0.95}}, .eps = 1e-4, .weight_decay = 0.1});
  }
  if (name == "adam_amsgrad") {
    return adam({.lr = 0.05, .amsgrad = true, .maximize = true});
  }
  if (name == "adamw") {
    return adamw({.lr = 0.05});
  }
  if (name == "adamw_decay") {
    return adamw({.lr = 0.05, .betas = {{0.8, 0.95}}, .eps = 1e-4, .weight_decay = 0.3});
  }
  REQUIRE(name == "adamw_amsgrad");
  return adamw({.lr = 0.05, .amsgrad = true, .maximize = true});
}

std::vector<at::Tensor> random_params(const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<at::Tensor> out;
  for (const auto& shape : shapes) {
    out.push_back(at::randn(shape).set_requires_grad(true));
  }
  return out;
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> out;
  for (const auto& param : params) {
    out.push_back(param.detach().clone().set_requires_grad(true));
  }
  return out;
}

TEST_CASE("Optimizer: six updates give the numbers of torch.optim, fused and plain", "[optim]") {
  for (const auto& [dtype, golden] : optim_numbers()["optimizers"].items()) {
    for (const auto& [name, expected] : golden["cases"].items()) {
      for (const bool fused : {true, false}) {
        CAPTURE(dtype, name, fused);
        auto params = golden_params(golden["params"], dtype_of(dtype));
        const auto optimizer = make_case(name, params, fused);
        for (std::size_t step = 0; step < golden["grads"].size(); ++step) {
          set_grads(params, golden["grads"][step]);
          optimizer->step();
          if (step + 1 == saved_at) {
            check_params(params, expected["saved_params"], dtype);
            check_same_state(optimizer->state_dict(), state_of(expected["state"]), dtype);
          }
        }
        check_params(params, expected["params"], dtype);
      }
    }
  }
}

TEST_CASE("Optimizer: a state of torch.optim is loaded and gone on with", "[optim]") {
  for (const auto& [dtype, golden] : optim_numbers()["optimizers"].items()) {
    for (const auto& [name, expected] : golden["cases"].items()) {
      CAPTURE(dtype, name);
      auto params = golden_params(expected["saved_params"], dtype_of(dtype));
      const std::string kind = name.substr(0, name.find('_'));
      const auto optimizer = make_case(kind, params, true);  // options come with the state
      optimizer->load_state_dict(state_of(expected["state"]));
      for (std::size_t step = saved_at; step < golden["grads"].size(); ++step) {
        set_grads(params, golden["grads"][step]);
        optimizer->step();
      }
      check_params(params, expected["params"], dtype);
    }
  }
}

TEST_CASE("Optimizer: saved, loaded and continued equals uninterrupted bit for bit", "[optim]") {
  const auto& golden = optim_numbers()["optimizers"]["float32"];
  for (const auto& [name, expected] : golden["cases"].items()) {
    for (const bool fused : {true, false}) {
      CAPTURE(name, fused);
      auto params = golden_params(golden["params"], at::kFloat);
      auto resumed_params = copies(params);
      const auto optimizer = make_case(name, params, fused);
      std::shared_ptr<optim::Optimizer> resumed;
      for (std::size_t step = 0; step < golden["grads"].size(); ++step) {
        if (step == saved_at) {
          resumed_params = copies(params);
          resumed = make_case(name, resumed_params, fused);
          resumed->load_state_dict(optimizer->state_dict());
        }
        set_grads(params, golden["grads"][step]);
        optimizer->step();
        if (resumed) {
          set_grads(resumed_params, golden["grads"][step]);
          resumed->step();
        }
      }
      for (std::size_t i = 0; i < params.size(); ++i) {
        CHECK(at::equal(params[i], resumed_params[i]));
      }
      CHECK(danling::first_difference(optimizer->state_dict(), resumed->state_dict()).empty());
    }
  }
}

TEST_CASE("Optimizer: the divisor gives the update of divided gradients", "[optim]") {
  for (const auto& [dtype, golden] : optim_numbers()["optimizers"].items()) {
    for (const auto& [name, expected] : golden["cases"].items()) {
      for (const double divisor : {64.0, 0.3}) {
        for (const bool fused : {true, false}) {
          CAPTURE(dtype, name, divisor, fused);
          auto params = golden_params(golden["params"], dtype_of(dtype));
          auto divided_params = copies(params);
          const auto optimizer = make_case(name, params, fused);
          const auto reference = make_case(name, divided_params, fused);
          for (std::size_t step = 1; step < 4; ++step) {
            set_grads(params, golden["grads"][step]);
            set_grads(divided_params, golden["grads"][step]);
            for (auto& param : divided_params) {
              param.mutable_grad().div_(divisor);
            }
            optimizer->step(divisor);
            reference->step();
          }
          // The kernels keep more digits of a divided two-byte gradient than its dtype holds.
          const auto [relative, absolute] = tolerance_of(dtype);
          for (std::size_t i = 0; i < params.size(); ++i) {
            CHECK(at::allclose(params[i].detach(), divided_params[i].detach(), relative, absolute));
          }
        }
      }
    }
  }
  auto params = random_params({{2}});
  const auto optimizer = optim::sgd(params);
  CHECK(error_of<danling::StateError>([&] { optimizer->step(0); }) ==
        "[SGD.step] expected a finite grad_divisor above 0, got 0.0");
}

TEST_CASE("Optimizer: gradients and parameters of any layout give the update of contiguous ones", "[optim]") {
  const auto dense = [](const at::Tensor& tensor) { return tensor.clone(at::MemoryFormat::Contiguous); };
  const at::Tensor base = at::randn({4, 6});
  const at::Tensor image = at::randn({2, 3, 4, 4});
  const std::vector<std::pair<at::Tensor, at::Tensor>> layouts = {
      {base.t().detach().clone(at::MemoryFormat::Preserve), at::randn({6, 4})},  // contiguous gradient
      {at::randn({6, 4}), at::randn({4, 6}).t()},                                // transposed gradient
      {at::randn({4, 8}).narrow(1, 0, 6), at::randn({4, 8}).narrow(1, 0, 6)},    // both with gaps
      {at::randn({5, 4}), at::randn({4}).expand({5, 4})},                        // broadcast gradient
      {image.clone(at::MemoryFormat::ChannelsLast), at::randn({2, 3, 4, 4})},    // channels last
      {image.clone(at::MemoryFormat::ChannelsLast), image.clone(at::MemoryFormat::ChannelsLast)},
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    for (const char* name : {"sgd_momentum", "adam_amsgrad", "adamw_decay"}) {
      CAPTURE(i, name);
      at::Tensor param = layouts[i].first.detach().clone(at::MemoryFormat::Preserve);
      if (i == 2) {
        param = at::zeros({4, 8}).narrow(1, 0, 6).copy_(layouts[i].first);
      }
      param.set_requires_grad(true);
      at::Tensor plain = dense(layouts[i].first).set_requires_grad(true);
      const auto two = [&](const at::Tensor& tensor) {
        return std::vector<at::Tensor>{tensor, at::zeros({1}).set_requires_grad(true),
                                       at::zeros({1}).set_requires_grad(true)};
      };
      const auto optimizer = make_case(name, two(param), true);
      const auto reference = make_case(name, two(plain), false);
      for (int step = 0; step < 3; ++step) {
        // The second step has a gradient in the parameter's layout, so it takes another path through the kernels.
        at::Tensor grad = step == 1 ? at::empty_like(param).copy_(layouts[i].second) : layouts[i].second;
        param.mutable_grad() = grad.detach();
        plain.mutable_grad() = dense(layouts[i].second);
        optimizer->step();
        reference->step();
        CHECK(at::allclose(param.detach(), plain.detach(), 1e-5, 1e-6));
      }
      // A state saved from one layout fits the other.
      auto saved = reference->state_dict();
      optimizer->load_state_dict(saved);
      CHECK(danling::first_difference(optimizer->state_dict()["state"], saved["state"]).empty());
    }
  }
}

TEST_CASE("Optimizer: complex parameters are updated like their real and imaginary parts", "[optim]") {
  for (const char* name : {"sgd_nesterov", "adam_decay", "adamw_amsgrad"}) {
    CAPTURE(name);
    const auto spare = [] { return at::zeros({1}).set_requires_grad(true); };
    at::Tensor real = at::randn({3, 2}).set_requires_grad(true);
    at::Tensor complex = at::view_as_complex(real.detach().clone()).set_requires_grad(true);
    const auto optimizer = make_case(name, {complex, spare(), spare()}, true);
    const auto reference = make_case(name, {real, spare(), spare()}, false);
    for (int step = 0; step < 3; ++step) {
      real.mutable_grad() = at::randn({3, 2});
      complex.mutable_grad() = at::view_as_complex(real.grad().clone());
      optimizer->step();
      reference->step();
    }
    CHECK(at::allclose(at::view_as_real(complex.detach()), real.detach(), 1e-5, 1e-6));
  }
}

TEST_CASE("Optimizer: a gradient of lower precision than its parameter takes the plain path", "[optim]") {
  at::Tensor param = at::ones({4}).set_requires_grad(true);
  const auto optimizer = optim::sgd({param}, {.lr = 0.5});
  // Assigned without autograd's checks, as hooks of mixed precision training do.
  const at::Tensor grad = at::ones({4}, at::kBFloat16);
  param.mutable_grad() = grad;
  optimizer->step();
  CHECK(at::equal(param.detach(), at::ones({4}).mul(0.5)));
}

TEST_CASE("Optimizer: parameters of several dtypes share a group, those without gradient stay", "[optim]") {
  at::Tensor single = at::ones({2}).set_requires_grad(true);
  at::Tensor doubled = at::ones({2}, at::kDouble).set_requires_grad(true);
  at::Tensor frozen = at::ones({2});
  at::Tensor empty = at::ones({0}).set_requires_grad(true);
  const auto optimizer = optim::sgd({single, doubled, frozen, empty}, {.lr = 0.5, .momentum = 0.9});
  for (auto* param : {&single, &doubled, &empty}) {
    param->mutable_grad() = at::ones_like(*param).detach();
  }
  optimizer->step();
  CHECK(single[0].item().toDouble() == 0.5);
  CHECK(doubled[1].item().toDouble() == 0.5);
  CHECK(frozen[0].item().toDouble() == 1.0);
  CHECK(optimizer->state_dict().at("state").map().size() == 3);
}

TEST_CASE("Optimizer: what it cannot use is refused with the name of the parameter", "[optim]") {
  auto params = random_params({{2, 3}, {4}});
  optim::AdamW named(params, {}, {"fc.weight", "fc.bias"});
  const auto unnamed = optim::sgd(params);
  params[1].mutable_grad() = at::sparse_coo_tensor(at::zeros({1, 1}, at::kLong), at::ones({1}), {4});
  CHECK(error_of<danling::StateError>([&] { named.step(); }) ==
        "[AdamW.step] expected a dense gradient of 'fc.bias', got a sparse one; make it dense, for instance with "
        "Embedding's sparse(false)");
  params[1].mutable_grad() = at::ones({5});
  CHECK(error_of<danling::StateError>([&] { unnamed->step(); }) ==
        "[SGD.step] expected the gradient of parameter 1 with shape [4], got [5]");
  params[1].mutable_grad() = at::ones({4});
  named.step();
  unnamed->param_groups()[0].params[0] = at::ones({2, 3});
  CHECK(error_of<danling::StateError>([&] { unnamed->step(); }) ==
        "[SGD.step] expected the parameters of group 0 as they were added, got others; use add_param_group, or build a "
        "new optimizer");
  params[1].set_data(at::ones({4}, at::kDouble));
  params[1].mutable_grad() = at::ones({4}, at::kDouble);
  CHECK(error_of<danling::StateError>([&] { named.step(); }) ==
        "[AdamW.step] expected exp_avg of 'fc.bias' as Double [4] on cpu, got Float [4] on cpu; move or convert the "
        "model before the first update");
}

TEST_CASE("Optimizer: groups and options are checked when they are given", "[optim]") {
  const auto params = random_params({{2}, {3}});
  const auto message = [](auto&& call) { return error_of<danling::ConfigError>(call); };
  CHECK(message([&] { optim::sgd(params, {.lr = -1}); }) == "[SGD.options] expected lr to be 0 or more, got -1.0");
  CHECK(message([&] { optim::sgd(params, {.nesterov = true}); }) ==
        "[SGD.options] expected momentum above 0 and no dampening with nesterov, got momentum 0.0 and dampening 0.0");
  CHECK(message([&] { optim::adamw(params, {.betas = {{0.9, 1.0}}}); }) ==
        "[AdamW.options] expected betas from 0 to below 1, got 1.0");
  CHECK(message([&] { optim::adam(params, {.eps = -1}); }) == "[Adam.options] expected eps to be 0 or more, got -1.0");
  CHECK(message([&] { optim::sgd({params[0], params[0]}); }) ==
        "[SGD.add_param_group] expected each parameter once, got one that the optimizer has already for parameter 1");
  CHECK(message([&] { optim::Adam(params, {}, {"a"}); }) ==
        "[Adam.add_param_group] expected 2 names, one per parameter, got 1");
  CHECK(message([&] { optim::sgd({params[0].mul(2)}); }) ==
        "[SGD.add_param_group] expected a leaf tensor, got the result of an operation for parameter 0");
  optim::SGD optimizer(params, {.lr = 0.5});
  CHECK(message([&] { optimizer.add_param_group({}, {}); }) ==
        "[SGD.add_param_group] expected at least one parameter, got none");
  optimizer.set_options(0, {.lr = 0.25, .momentum = 0.5});
  CHECK(optimizer.param_groups()[0].lr == 0.25);
  optimizer.param_groups()[0].lr = 0.125;
  CHECK(optimizer.options().lr == 0.125);
  CHECK(optimizer.options().momentum == 0.5);
}

TEST_CASE("Optimizer: a state that does not fit is refused by name and changes nothing", "[optim]") {
  auto params = random_params({{2, 3}, {4}});
  for (auto& param : params) {
    param.mutable_grad() = at::ones_like(param).detach();
  }
  const std::vector<std::string> names = {"fc.weight", "fc.bias"};
  optim::AdamW optimizer(params, {}, names);
  optimizer.step();
  const State before = danling::clone(optimizer.state_dict());
  const auto message = [&](auto&& change) {
    State state = danling::clone(before);
    change(state);
    std::string out = error_of<danling::StateError>([&] { optimizer.load_state_dict(state); });
    CHECK(danling::first_difference(optimizer.state_dict(), before).empty());
    return out;
  };
  const auto group = [](State& state) -> State& { return state["param_groups"].list()[0]; };

  CHECK(message([](State& s) { s["state"][1]["exp_avg_sq"] = at::zeros({3}); }) ==
        "[AdamW.load_state_dict] expected exp_avg_sq of 'fc.bias' with shape [4], got [3]");
  CHECK(message([](State& s) { s["state"][0].map().erase("exp_avg"); }) ==
        "[AdamW.load_state_dict] expected exp_avg in the state of 'fc.weight', got none");
  CHECK(message([](State& s) { s["state"][0].map().erase("step"); }) ==
        "[AdamW.load_state_dict] expected step in the state of 'fc.weight', got none");
  CHECK(message([](State& s) { s["state"][0]["momentum_buffer"] = 1; }) ==
        "[AdamW.load_state_dict] expected the state of 'fc.weight' to hold step, master_param, exp_avg, exp_avg_sq, "
        "max_exp_avg_sq, "
        "got 'momentum_buffer'");
  CHECK(message([](State& s) { s["state"][2] = State::Map(); }) ==
        "[AdamW.load_state_dict] expected states of the parameters in param_groups, got one of 2");
  CHECK(message([](State& s) { s.map().erase("state"); }) ==
        "[AdamW.load_state_dict] expected 'state' in the state, got none");
  CHECK(message([](State& s) { s["param_groups"] = State::List(); }) ==
        "[AdamW.load_state_dict] expected 1 parameter groups, got 0");
  CHECK(message([&](State& s) { group(s)["params"] = State::List{0}; }) ==
        "[AdamW.load_state_dict] expected 2 parameters in group 0, got 1");
  CHECK(message([&](State& s) { group(s)["param_names"] = State::List{"fc.bias", "fc.weight"}; }) ==
        "[AdamW.load_state_dict] expected parameter 'fc.weight' at position 0 of group 0, got 'fc.bias'");
  CHECK(message([&](State& s) { group(s)["momentum"] = 0.9; }) ==
        "[AdamW.load_state_dict] expected the options of this kind of optimizer in param_groups[0], got 'momentum'");
  CHECK(message([&](State& s) { group(s)["decoupled_weight_decay"] = false; }) ==
        "[AdamW.load_state_dict] expected the state of AdamW, got that of Adam (decoupled_weight_decay)");
  CHECK(message([&](State& s) { group(s)["amsgrad"] = true; }) ==
        "[AdamW.load_state_dict] expected max_exp_avg_sq in the state of 'fc.weight', got none");
  CHECK(message([&](State& s) { group(s)["betas"] = 0.9; }) ==
        "[AdamW.load_state_dict] expected two numbers for betas, got a number");
  CHECK(message([&](State& s) { group(s)["lr"] = "fast"; }) ==
        "[AdamW.load_state_dict] expected a number for param_groups[0].lr, got a string");
  CHECK(message([&](State& s) { s = optim::SGD(params, {}).state_dict(); }) ==
        "[AdamW.load_state_dict] expected the options of this kind of optimizer in param_groups[0], got 'momentum'");
}

TEST_CASE("Optimizer: zero_grad drops gradients or fills them, and the optimizer keeps none alive", "[optim]") {
  auto params = random_params({{3}});
  const auto optimizer = optim::adamw(params);
  params[0].mutable_grad() = at::ones({3});
  const c10::weak_intrusive_ptr<c10::TensorImpl> grad(params[0].grad().getIntrusivePtr());
  optimizer->step();
  optimizer->zero_grad();
  CHECK_FALSE(params[0].grad().defined());
  CHECK(grad.expired());

  const at::Tensor bucket = at::ones({10});
  params[0].mutable_grad() = bucket.narrow(0, 2, 3);
  optimizer->zero_grad(/*set_to_none=*/false);
  CHECK(params[0].grad().is_alias_of(bucket));
  CHECK(bucket.sum().item().toDouble() == 7);
}

TEST_CASE("Optimizer: the same inputs give the same bits in every run and with every number of threads", "[optim]") {
  const int threads = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> runs;
  const std::vector<at::Tensor> start = random_params({{300, 333}, {7}});
  std::vector<at::Tensor> grads;
  for (const auto& param : start) {
    grads.push_back(at::randn(param.sizes()));
  }
  for (const int count : {1, 2, 2}) {
    at::set_num_threads(count);
    auto params = copies(start);
    const auto optimizer = optim::adamw(params, {.lr = 0.1});
    const auto momentum = optim::sgd(params, {.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < 5; ++step) {
      for (std::size_t i = 0; i < params.size(); ++i) {
        params[i].mutable_grad() = grads[i].clone();
      }
      optimizer->step();
      momentum->step();
    }
    runs.push_back(params);
  }
  at::set_num_threads(threads);
  for (std::size_t i = 0; i < start.size(); ++i) {
    CHECK(at::equal(runs[0][i], runs[1][i]));
    CHECK(at::equal(runs[1][i], runs[2][i]));
  }
}

}  // namespace
