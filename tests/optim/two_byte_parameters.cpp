// Parameters of two bytes: with float32 copies, and with stochastic rounding.
#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <danling/optim/build.hpp>
#include <danling/optim/sgd.hpp>

#include <support/catch.hpp>

#include "waves.hpp"

namespace update_rules {
namespace {

namespace optim = danling::optim;
using danling::State;
using optim::OptimizerOptions;
using optim::OptimizerSpec;

TEST_CASE("master_weights: two-byte parameters are the rounded parameters of a float32 run", "[optim]") {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const bool fused : {true, false}) {
      for (const char* type : {"sgd", "adamw", "radam"}) {
        CAPTURE(c10::toString(dtype), fused, type);
        const at::Tensor narrow = waves({1000}, 0.1, dtype).set_requires_grad(true);
        const at::Tensor wide = narrow.detach().to(at::kFloat).set_requires_grad(true);
        const OptimizerOptions options{.lr = 1e-4, .fused = fused};
        OptimizerOptions with_master = options;
        with_master.master_weights = true;
        const auto got = optim::build_optimizer({type, with_master}, {{"p", narrow}});
        const auto expected = optim::build_optimizer({type, options}, {{"p", wide}});
        for (int step = 0; step < 20; ++step) {
          narrow.mutable_grad() = waves({1000}, 0.4 + step, dtype);
          wide.mutable_grad() = narrow.grad().to(at::kFloat);
          got->step();
          expected->step();
          CHECK(at::equal(narrow.detach(), wide.detach().to(dtype)));
        }
        const State state = got->state_dict();
        CHECK(at::equal(state.at("state").at(0).at("master_param").tensor(), wide.detach()));

        // A resumed optimizer continues equally.
        const at::Tensor copy = narrow.detach().clone().set_requires_grad(true);
        const auto resumed = optim::build_optimizer({type, with_master}, {{"p", copy}});
        resumed->load_state_dict(state);
        narrow.mutable_grad() = waves({1000}, 0.9, dtype);
        copy.mutable_grad() = narrow.grad().clone();
        got->step();
        resumed->step();
        CHECK(at::equal(copy.detach(), narrow.detach()));
      }
    }
  }
}

TEST_CASE("master_weights: a parameter that the program changes replaces its float32 copy", "[optim]") {
  for (const bool fused : {true, false}) {
    const at::Tensor param = at::full({100}, 1.0, at::kBFloat16).set_requires_grad(true);
    optim::SGD optimizer({param}, {.lr = 0x1p-10, .fused = fused, .master_weights = true});
    const auto step = [&] {
      param.mutable_grad() = at::full({100}, 1.0, at::kBFloat16);
      optimizer.step();
    };
    step();
    CHECK(at::equal(param.detach(), at::full({100}, 1.0, at::kBFloat16)));  // 1 - 2^-10 rounds to 1 in bfloat16
    for (int i = 0; i < 3; ++i) {
      step();
    }
    CHECK(at::equal(param.detach(), at::full({100}, 1.0 - 0x1p-8, at::kBFloat16)));
    {
      const at::NoGradGuard no_grad;
      param.narrow(0, 0, 50).fill_(2.0);  // for instance weights that were loaded
    }
    for (int i = 0; i < 8; ++i) {
      step();
    }
    CHECK(at::equal(param.detach().narrow(0, 0, 50), at::full({50}, 2.0 - 0x1p-7, at::kBFloat16)));
    CHECK(at::equal(param.detach().narrow(0, 50, 50), at::full({50}, 1.0 - 0x1p-8 - 0x1p-7, at::kBFloat16)));
  }
}

TEST_CASE("stochastic_rounding: updates below the precision of bfloat16 are not lost on average", "[optim]") {
  constexpr std::int64_t size = 100'000;
  std::vector<at::Tensor> results;
  for (const bool fused : {true, false}) {
    const at::Tensor param = at::full({size}, 1.0, at::kBFloat16).set_requires_grad(true);
    // bfloat16 numbers above 1 are 2^-7 apart: one step of 2^-10 is an eighth of that.
    optim::SGD optimizer({param}, {.lr = 0x1p-10, .maximize = true, .fused = fused, .stochastic_rounding = true});
    param.mutable_grad() = at::full({size}, 1.0, at::kBFloat16);
    optimizer.step();
    const at::Tensor moved = param.detach().to(at::kDouble).gt(1.0).to(at::kDouble);
    CHECK(at::equal(param.detach().to(at::kDouble), moved.mul(0x1p-7).add(1)));
    CHECK(moved.mean().item().toDouble() == Approx(0.125).margin(5 * std::sqrt(0.125 * 0.875 / size)));
    for (int i = 0; i < 7; ++i) {
      optimizer.step();
    }
    CHECK(param.detach().to(at::kDouble).mean().item().toDouble() == Approx(1 + 0x1p-7).margin(2e-4));
    results.push_back(param.detach());
  }
  CHECK(at::equal(results[0], results[1]));  // operations on tensors draw the same random bits
}

TEST_CASE("stochastic_rounding: a run that is resumed rounds as the run that was not", "[optim]") {
  for (const char* type : {"sgd", "lion", "adamw"}) {
    CAPTURE(type);
    const OptimizerSpec spec{type, {.lr = 1e-3, .stochastic_rounding = true}};
    const at::Tensor through = waves({500}, 0.1, at::kBFloat16).set_requires_grad(true);
    const auto optimizer = optim::build_optimizer(spec, {{"p", through}});
    const auto step = [](optim::Optimizer& own, const at::Tensor& param, int number) {
      param.mutable_grad() = waves({500}, 0.4 + number, at::kBFloat16);
      own.step();
    };
    step(*optimizer, through, 0);
    step(*optimizer, through, 1);
    const at::Tensor copy = through.detach().clone().set_requires_grad(true);
    const auto resumed = optim::build_optimizer(spec, {{"p", copy}});
    resumed->load_state_dict(optimizer->state_dict());
    step(*optimizer, through, 2);
    step(*resumed, copy, 2);
    CHECK(at::equal(copy.detach(), through.detach()));
  }
}

}  // namespace
}  // namespace update_rules
