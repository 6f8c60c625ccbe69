// The update rules: one pass over memory against operations on tensors, over threads, dtypes and layouts.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include <danling/optim/build.hpp>
#include <danling/optim/sgd.hpp>

#include <optim/spans.hpp>

#include <support/catch.hpp>

#include "waves.hpp"

namespace update_rules {
namespace {

namespace optim = danling::optim;
using optim::OptimizerSpec;

/// Every elementwise optimizer with the options that change its formula.
const std::vector<OptimizerSpec>& specs() {
  static const std::vector<OptimizerSpec> all = [] {
    const std::vector<OptimizerSpec> bases = {
        {"sgd", {.lr = 0.1}},
        {"sgd", {.lr = 0.1, .momentum = 0.9, .dampening = 0.3}},
        {"sgd", {.lr = 0.1, .momentum = 0.9, .nesterov = true}},
        {"asgd", {.lr = 0.1, .lambd = 0.01, .t0 = 2}},
        {"rprop", {.lr = 0.1}},
        {"lion", {.lr = 0.1}},
        {"adadelta", {.lr = 1}},
        {"adagrad", {.lr = 0.1, .lr_decay = 0.1, .initial_accumulator_value = 0.5}},
        {"rmsprop", {.lr = 0.1, .eps = 1e-3}},
        {"rmsprop", {.lr = 0.1, .momentum = 0.5, .eps = 1e-3}},
        {"rmsprop", {.lr = 0.1, .eps = 1e-3, .centered = true}},
        {"rmsprop", {.lr = 0.1, .momentum = 0.5, .eps = 1e-3, .centered = true}},
        {"adam", {.lr = 0.1}},
        {"adam", {.lr = 0.1, .amsgrad = true}},
        {"adamw", {.lr = 0.1}},
        {"adamax", {.lr = 0.1}},
        {"nadam", {.lr = 0.1}},
        {"nadam", {.lr = 0.1, .decoupled_weight_decay = true}},
        {"radam", {.lr = 0.1}},
        {"radam", {.lr = 0.1, .betas = {{0.8, 0.9}}, .decoupled_weight_decay = true}},
    };
    std::vector<OptimizerSpec> out = bases;
    for (OptimizerSpec spec : bases) {
      spec.maximize = true;
      if (spec.type != "rprop") {
        spec.weight_decay = 0.1;
      }
      out.push_back(spec);
    }
    return out;
  }();
  return all;
}

std::string text_of(const OptimizerSpec& spec) {
  return danling::detail::concat(*spec.type, " momentum ", spec.momentum.value_or(0), " centered ",
                                 spec.centered.value_or(false), " amsgrad ", spec.amsgrad.value_or(false), " maximize ",
                                 spec.maximize.value_or(false));
}

struct Net {
  std::vector<at::Tensor> params;
  std::shared_ptr<optim::Optimizer> optimizer;

  Net(OptimizerSpec spec, at::TensorOptions options, bool fused) {
    spec.fused = fused;
    // Around the widths of vectors, of a block, and more than a thread's share.
    for (const std::int64_t size : {0, 1, 7, 33, 511, 513, 1200, 70'001}) {
      params.push_back(waves({size}, 0.1, options).set_requires_grad(true));
    }
    params.push_back(waves({6, 5}, 0.2, options).t().set_requires_grad(true));
    params.push_back(waves({}, 0.3, options).set_requires_grad(true));
    std::vector<optim::NamedParameter> named;
    for (std::size_t i = 0; i < params.size(); ++i) {
      named.emplace_back("p" + std::to_string(i), params[i]);
    }
    optimizer = optim::build_optimizer(spec, named);
  }

  void set_gradients(int step, double factor = 1) {
    for (std::size_t i = 0; i < params.size(); ++i) {
      if ((static_cast<std::size_t>(step) + i) % 5 == 4) {
        params[i].mutable_grad().reset();  // its counts fall behind
        continue;
      }
      at::Tensor grad = at::empty_like(params[i].detach());
      grad.copy_(waves(params[i].sizes(), 0.5 + step, at::kDouble).mul_(factor));
      params[i].mutable_grad() = grad;
    }
  }
  void step(int number, double divisor = 1) {
    set_gradients(number, divisor);
    optimizer->step(divisor);
  }
};

double tolerance_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-5 : dtype == at::kHalf ? 2e-2 : 1e-1;
}

void check_same(const Net& got, const Net& expected, double tolerance) {
  for (std::size_t i = 0; i < got.params.size(); ++i) {
    const at::Tensor a = got.params[i].detach().to(at::kDouble);
    const at::Tensor b = expected.params[i].detach().to(at::kDouble);
    CAPTURE(i);
    CHECK(at::allclose(a, b, tolerance, tolerance));
  }
}

TEST_CASE("Update rules: one pass over memory gives the update of operations on tensors", "[optim][fused]") {
  for (const OptimizerSpec& spec : specs()) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      if (c10::elementSize(dtype) == 2 && (spec.type == "lion" || spec.type == "rprop")) {
        continue;  // a sign that differs by a rounding moves a parameter by a whole step
      }
      CAPTURE(text_of(spec), c10::toString(dtype));
      Net pass(spec, dtype, true);
      Net lists(spec, dtype, false);
      for (int step = 0; step < 8; ++step) {
        const double divisor = step % 3 == 2 ? 4 : 1;
        pass.step(step, divisor);
        lists.step(step, divisor);
      }
      check_same(pass, lists, tolerance_of(dtype));
    }
  }
}

TEST_CASE("Update rules: gradients of another dtype are taken", "[optim]") {
  for (const auto grad : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    CAPTURE(c10::toString(grad));
    const at::Tensor a = at::full({100}, 2.0, at::kFloat).set_requires_grad(true);
    optim::SGD optimizer({a}, {.lr = 0.5});
    a.mutable_grad() = at::full({100}, 0.5, at::kFloat).to(grad);
    optimizer.step();
    CHECK(at::equal(a.detach(), at::full({100}, 1.75)));
  }
}

TEST_CASE("Update rules: the number of threads does not change the bits", "[optim]") {
  const int before = at::get_num_threads();
  for (const char* type : {"sgd", "adamw", "rprop", "nadam"}) {
    CAPTURE(type);
    at::set_num_threads(1);
    Net one({type, {.lr = 0.1}}, at::kFloat, true);
    one.step(0);
    one.step(1);
    at::set_num_threads(4);
    Net four({type, {.lr = 0.1}}, at::kFloat, true);
    four.step(0);
    four.step(1);
    check_same(four, one, 0);
  }
  std::vector<at::Tensor> tensors;
  for (const std::int64_t size : {3, 100'000, 17}) {
    tensors.push_back(waves({size}, 0.3, at::kFloat));
  }
  at::set_num_threads(1);
  const double one = optim::detail::sum_squares(tensors);
  at::set_num_threads(4);
  CHECK(optim::detail::sum_squares(tensors) == one);
  at::set_num_threads(before);
}

TEST_CASE("Update rules: complex parameters are updated as pairs of real numbers", "[optim]") {
  for (const char* type : {"sgd", "adamw", "adagrad", "lion"}) {
    CAPTURE(type);
    const at::Tensor pairs = waves({50, 2}, 0.1, at::kFloat).set_requires_grad(true);
    const at::Tensor complex = at::view_as_complex(pairs.detach().clone()).set_requires_grad(true);
    const auto real = optim::build_optimizer({type, {.lr = 0.1}}, {{"p", pairs}});
    const auto whole = optim::build_optimizer({type, {.lr = 0.1}}, {{"p", complex}});
    for (int step = 0; step < 3; ++step) {
      pairs.mutable_grad() = waves({50, 2}, 0.4 + step, at::kFloat);
      complex.mutable_grad() = at::view_as_complex(pairs.grad().clone());
      real->step();
      whole->step();
    }
    CHECK(at::allclose(at::view_as_real(complex.detach()), pairs.detach(), 1e-5, 1e-6));
  }
}

TEST_CASE("Optimizers: autograd notices that an update changed a parameter that a graph still needs", "[optim]") {
  const at::Tensor weight = at::full({3}, 2.0).set_requires_grad(true);
  const at::Tensor loss = (weight * weight).sum();
  optim::SGD optimizer({weight}, {.lr = 1});
  weight.mutable_grad() = at::full({3}, 1.0);
  optimizer.step();
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("modified by an inplace operation"));
}

}  // namespace
}  // namespace update_rules
