// Updates by a scale and a flag that may lie on a device.
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/rmsprop.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/optim/torch_adapter.hpp>

#include <optim/plan.hpp>

#include <support/cuda.hpp>
#include <support/error.hpp>

namespace {

namespace scaled {

namespace optim = danling::optim;
using danling::State;
using danling::StateError;
using danling_test::error_of;
using optim::GradScale;
using optim::OptimizerOptions;

struct Kind {
  const char* name;
  std::shared_ptr<optim::Optimizer> (*make)(std::vector<at::Tensor>, const OptimizerOptions&);
  OptimizerOptions options;
};

template <class Optimizer>
std::shared_ptr<optim::Optimizer> make(std::vector<at::Tensor> params, const OptimizerOptions& options) {
  return std::make_shared<Optimizer>(std::move(params), options);
}

const Kind kinds[] = {
    {"sgd", make<optim::SGD>, {.lr = 0.5, .weight_decay = 0.1}},
    {"sgd momentum", make<optim::SGD>, {.lr = 0.5, .momentum = 0.9, .nesterov = true}},
    {"sgd dampening", make<optim::SGD>, {.lr = 0.5, .momentum = 0.9, .dampening = 0.25, .maximize = true}},
    {"adam", make<optim::Adam>, {.lr = 0.5, .weight_decay = 0.1}},
    {"adam amsgrad", make<optim::Adam>, {.lr = 0.5, .amsgrad = true}},
    {"adamw", make<optim::AdamW>, {.lr = 0.5, .betas = {{0.8, 0.9}}}},
};

/// Two parameters, the second with strides that no fused kernel takes.
struct Net {
  std::vector<at::Tensor> params;
  std::shared_ptr<optim::Optimizer> optimizer;

  Net(const Kind& kind, at::TensorOptions where, bool fused) {
    for (const std::int64_t size : {9, 40}) {
      at::Tensor values = at::arange(size, at::kDouble).mul_(0.7).sin_().to(where);
      params.push_back(values.set_requires_grad(true));
    }
    params.push_back(at::arange(12, at::kDouble).cos_().reshape({3, 4}).to(where).set_requires_grad(true));
    OptimizerOptions options = kind.options;
    options.fused = fused;
    optimizer = kind.make(params, options);
  }

  /// Gradients of update `t`, times `factor`: a power of two in half precision, so that nothing is rounded.
  void set_gradients(int t, double factor) {
    for (std::size_t i = 0; i < params.size(); ++i) {
      const at::Tensor grad = at::arange(params[i].numel(), at::kDouble).add_(t).mul_(0.3).sin_();
      params[i].mutable_grad() =
          grad.reshape(params[i].sizes()).to(params[i].options().requires_grad(false)).mul_(factor);
    }
    params[2].mutable_grad() = params[2].grad().t().contiguous().t();  // other strides than the parameter's
  }
};

void check_equal(const Net& got, const Net& expected, double tolerance) {
  for (std::size_t i = 0; i < got.params.size(); ++i) {
    const at::Tensor difference = got.params[i].detach().to(at::kDouble) - expected.params[i].detach().to(at::kDouble);
    CHECK(difference.abs().max().item().toDouble() <= tolerance);
  }
}

/// Every tensor of a state, in order, as float64.
std::vector<at::Tensor> tensors_of(const State& state) {
  std::vector<at::Tensor> out;
  for (const auto& param : state.at("state").map()) {
    for (const auto& entry : param.value.map()) {
      if (entry.key.string() == "step" && param.value.map().find("exp_avg") == nullptr) {
        continue;  // of SGD, where only a device knows whether the next momentum is the first
      }
      out.push_back(entry.value.tensor().to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true));
    }
  }
  return out;
}

void check_states(const Net& got, const Net& expected, double tolerance) {
  const auto a = tensors_of(got.optimizer->state_dict());
  const auto b = tensors_of(expected.optimizer->state_dict());
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK((a[i] - b[i]).abs().max().item().toDouble() <= tolerance);
  }
}

using Step = void (*)(optim::Optimizer&, const GradScale&);
void public_step(optim::Optimizer& optimizer, const GradScale& scale) { optimizer.step(scale); }

/// A run whose third update is skipped equals one without it: parameters, momenta, counts.
void check_run(const Kind& kind, at::TensorOptions where, bool fused, Step step, bool first_refused) {
  CAPTURE(kind.name, where.dtype().name(), fused, first_refused);
  const bool half = where.dtype() == at::kBFloat16;
  const double scale = half ? 4.0 : 3.0;
  // Where the device knows the count, the last factor is a tensor, and half precision rounds once more.
  const double tolerance = half ? 0x1p-6 : 1e-6;
  const auto number = [&](double value) {
    return at::full({}, value, at::TensorOptions().device(where.device()).dtype(at::kFloat));
  };
  Net got(kind, where, fused);
  Net expected(kind, where, fused);
  const int refused = first_refused ? 0 : 2;
  for (int t = 0; t < 5; ++t) {
    got.set_gradients(t, 2.0 * scale);
    if (t == refused) {
      got.params[0].mutable_grad()[3] = std::numeric_limits<double>::infinity();
      got.params[2].mutable_grad()[1][1] = std::numeric_limits<double>::quiet_NaN();
    }
    // A flag that is the sum of several ranks' flags is more than 1.
    step(*got.optimizer, {.divisor = 2.0, .scale = number(scale), .found_inf = number(t == refused ? 2 : 0)});
    if (t != refused) {
      expected.set_gradients(t, 1.0);
      expected.optimizer->step();
    }
    check_equal(got, expected, tolerance);
  }
  check_states(got, expected, tolerance);
  // Later updates work as usual.
  got.set_gradients(9, 1.0);
  expected.set_gradients(9, 1.0);
  got.optimizer->step();
  expected.optimizer->step();
  check_equal(got, expected, tolerance);
  check_states(got, expected, tolerance);
}

void check_runs(at::Device device, Step step) {
  for (const Kind& kind : kinds) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const bool fused : {true, false}) {
        for (const bool first_refused : {false, true}) {
          check_run(kind, at::TensorOptions().device(device).dtype(dtype), fused, step, first_refused);
        }
      }
    }
  }
}

TEST_CASE("Optimizer: a scale and a flag on the host give the update of unscaled gradients, or none", "[optim]") {
  check_runs(at::kCPU, public_step);
}

TEST_CASE("Optimizer: the path for scales on a device gives the update of unscaled gradients, or none", "[optim]") {
  check_runs(at::kCPU, optim::detail::step_on_device);
}

TEST_CASE(
    "Optimizer: parameters of several dtypes, and such that overlap, each advance the schedules of their rule once",
    "[optim]") {
  const Kind scheduled[] = {{"nadam", make<optim::NAdam>, {.lr = 0.05}}, {"asgd", make<optim::ASGD>, {.lr = 0.05}}};
  for (const Kind& kind : scheduled) {
    CAPTURE(kind.name);
    const auto params = [] {
      const at::Tensor memory = at::linspace(0, 1, 12, at::kFloat);
      std::vector<at::Tensor> out = {at::ones({4}, at::kFloat), at::ones({4}, at::kDouble), memory.narrow(0, 0, 8),
                                     memory.narrow(0, 4, 8)};
      for (at::Tensor& param : out) {
        param = param.detach().set_requires_grad(true);
      }
      return out;
    };
    const auto got = params(), expected = params();
    const auto device = kind.make(got, kind.options), host = kind.make(expected, kind.options);
    for (int t = 0; t < 4; ++t) {
      for (std::size_t i = 0; i < got.size(); ++i) {
        got[i].mutable_grad() = at::arange(got[i].numel(), at::kDouble).add_(t).sin_().to(got[i].scalar_type());
        expected[i].mutable_grad() = got[i].grad().clone();
      }
      optim::detail::step_on_device(*device, {.scale = at::ones({})});
      host->step();
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK((got[i] - expected[i]).abs().max().item().toDouble() <= 1e-6);
    }
    const auto a = tensors_of(device->state_dict()), b = tensors_of(host->state_dict());
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK((a[i] - b[i]).abs().max().item().toDouble() <= 1e-6);
    }
  }
}

TEST_CASE("Optimizer: a scale and a flag on a GPU give the update of unscaled gradients, or none", "[optim][cuda]") {
  if (danling_test::has_cuda_device()) {
    check_runs(at::kCUDA, public_step);
  }
}

TEST_CASE("Optimizer: a scale alone and a flag alone are taken too", "[optim]") {
  for (const Step step : {Step(public_step), Step(optim::detail::step_on_device)}) {
    Net got(kinds[5], at::kDouble, true);
    Net expected(kinds[5], at::kDouble, true);
    got.set_gradients(0, 8.0);
    expected.set_gradients(0, 1.0);
    step(*got.optimizer, {.scale = at::scalar_tensor(8.0, at::kDouble)});
    expected.optimizer->step();
    check_equal(got, expected, 1e-6);
    got.set_gradients(1, 1.0);
    expected.set_gradients(1, 1.0);
    step(*got.optimizer, {.found_inf = at::full({1}, false, at::kBool)});
    expected.optimizer->step();
    check_equal(got, expected, 1e-6);
    got.set_gradients(2, 1.0);
    step(*got.optimizer, {.found_inf = at::full({1}, true, at::kBool)});
    check_equal(got, expected, 1e-15);
    check_states(got, expected, 1e-6);
  }
}

TEST_CASE("Optimizer: the adapter and a program's own optimizer take a scale and a flag", "[optim]") {
  struct Plain : optim::Optimizer {
    explicit Plain(at::Tensor param) { add_group({.params = {std::move(param)}, .lr = 1.0}); }
    std::string_view name() const override { return "Plain"; }
    State state_dict() const override { return {}; }
    void load_state_dict(const State&) override {}
    void update(double grad_divisor) override {
      ++updates;
      at::Tensor& param = groups_[0].params[0];
      param.sub_(param.grad(), groups_[0].lr / grad_divisor);
    }
    int updates = 0;
  };
  const auto zero = at::scalar_tensor(0.0, at::kFloat);
  at::Tensor param = at::full({2}, 1.0, at::kDouble).set_requires_grad(true);
  param.mutable_grad() = at::full({2}, 16.0, at::kDouble);
  Plain plain(param);
  plain.step({.divisor = 2.0, .scale = at::scalar_tensor(4.0, at::kFloat), .found_inf = zero});
  CHECK(param[0].item().toDouble() == -1.0);
  plain.step({.scale = at::scalar_tensor(0.0, at::kFloat), .found_inf = zero.add(1)});  // its scale does not matter
  CHECK(param[0].item().toDouble() == -1.0);
  CHECK(plain.updates == 1);

  at::Tensor theirs = at::full({2}, 1.0, at::kDouble).set_requires_grad(true);
  at::Tensor alone = theirs.detach().clone().set_requires_grad(true);
  const auto options = torch::optim::RMSpropOptions(0.5).momentum(0.9);
  const auto adapted =
      optim::adapt_torch_optimizer(std::make_shared<torch::optim::RMSprop>(std::vector<at::Tensor>{theirs}, options));
  torch::optim::RMSprop reference(std::vector<at::Tensor>{alone}, options);
  for (int t = 0; t < 3; ++t) {
    theirs.mutable_grad() = at::full({2}, 6.0 * (t + 1), at::kDouble);
    alone.mutable_grad() = at::full({2}, 1.0 * (t + 1), at::kDouble);
    const bool refused = t == 1;
    adapted->step(
        {.divisor = 2.0, .scale = at::scalar_tensor(3.0, at::kFloat), .found_inf = zero.add(refused ? 1 : 0)});
    if (!refused) {
      reference.step();
    }
    CHECK(theirs.sub(alone).abs().max().item().toDouble() <= 1e-12);
  }
}

TEST_CASE("Optimizer: a scale or a flag of several elements, and a scale of 0, are refused", "[optim]") {
  Net net(kinds[0], at::kFloat, true);
  net.set_gradients(0, 1.0);
  const auto message = [&](const GradScale& scale) {
    return error_of<StateError>([&] { net.optimizer->step(scale); });
  };
  CHECK(message({.scale = at::full({2}, 1.0)}) == "[SGD.step] expected a scale of one element, got 2");
  CHECK(message({.found_inf = at::full({3}, 1.0)}) == "[SGD.step] expected a found_inf of one element, got 3");
  CHECK(message({.scale = at::full({}, 0.0)}) == "[SGD.step] expected a finite grad_divisor above 0, got 0.0");
}

}  // namespace scaled

}  // namespace
