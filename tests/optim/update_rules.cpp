// The update rules: one pass over memory against operations on tensors, over instruction sets, threads, dtypes,
// layouts.
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/muon.hpp>
#include <danling/optim/sgd.hpp>

#include <optim/rules/kernels.hpp>
#include <optim/spans.hpp>

#include <support/error.hpp>

namespace {

namespace update_rules {

namespace optim = danling::optim;
namespace rules = danling::optim::rules;
using danling::ConfigError;
using danling::State;
using danling_test::error_of;
using optim::OptimizerOptions;
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

at::Tensor waves(at::IntArrayRef shape, double phase, at::TensorOptions options) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  return at::arange(count, at::kDouble).mul_(1.7).add_(phase).sin_().view(shape).to(options);
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

bool is_supported(const rules::Kernels& kernels) {
#if defined(__x86_64__)
  const std::string name = kernels.name;
  if (name == "avx2") {
    return __builtin_cpu_supports("avx2") != 0;
  }
  if (name == "avx512") {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  }
#endif
  return std::string(kernels.name) == "baseline";
}

TEST_CASE("Update rules: every instruction set gives the same bits", "[optim]") {
  // Constants of all rules lie between 0 and 2, so that one row of them does for each.
  const double constants[] = {1, 0.01, 0.1, 0.9, 0.5, 0.25, 0.75, 1.5, 0.3, 0.6, 1, 0};
  struct Case {
    rules::Type param, grad, state;
    bool master;
    std::uint32_t rounding;
  };
  using T = rules::Type;
  const Case cases[] = {
      {T::float32, T::float32, T::float32, false, 0},     {T::float64, T::float64, T::float64, false, 0},
      {T::bfloat16, T::bfloat16, T::bfloat16, false, 0},  {T::float16, T::float16, T::float16, false, 0},
      {T::bfloat16, T::bfloat16, T::float32, true, 0},    {T::float16, T::float16, T::float32, true, 0},
      {T::bfloat16, T::bfloat16, T::bfloat16, false, 77}, {T::float32, T::bfloat16, T::float32, false, 0}};
  const auto dtype_of = [](T type) {
    return type == T::float32    ? at::kFloat
           : type == T::float64  ? at::kDouble
           : type == T::bfloat16 ? at::kBFloat16
                                 : at::kHalf;
  };
  for (std::size_t kernel = 0; kernel < rules::kernel_count; ++kernel) {
    for (const Case& c : cases) {
      CAPTURE(kernel, static_cast<int>(c.param), c.master, c.rounding);
      std::vector<std::vector<at::Tensor>> results;
      for (const rules::Kernels* set : {&rules::baseline_kernels, &rules::avx2_kernels, &rules::avx512_kernels}) {
        if (!is_supported(*set)) {
          continue;
        }
        constexpr std::int64_t size = 1237;
        std::vector<at::Tensor> tensors = {waves({size}, 0.1, dtype_of(c.param)), waves({size}, 0.4, dtype_of(c.grad))};
        for (int row = 0; row < 3; ++row) {
          tensors.push_back(waves({size}, 0.7 + row, at::kDouble).abs().add(0.1).to(dtype_of(c.state)));
        }
        tensors.push_back(tensors[0].to(at::kFloat));
        rules::Span span{};
        span.param = tensors[0].mutable_data_ptr();
        span.grad = tensors[1].const_data_ptr();
        for (std::size_t row = 0; row < 3; ++row) {
          span.state[row] = tensors[2 + row].mutable_data_ptr();
        }
        span.master = c.master ? tensors[5].mutable_data_ptr<float>() : nullptr;
        span.count = size;
        span.constants = constants;
        span.rounding = c.rounding;
        span.param_type = c.param;
        span.grad_type = c.grad;
        span.state_type = c.state;
        set->update[kernel](span);
        const double squares = set->sum_squares(tensors[1].const_data_ptr(), c.grad, size);
        tensors.push_back(at::full({}, squares, at::kDouble));
        results.push_back(tensors);
      }
      for (std::size_t set = 1; set < results.size(); ++set) {
        for (std::size_t i = 0; i < results[set].size(); ++i) {
          // By bytes: NaN, which some constants make, equals itself.
          const at::Tensor a = results[set][i].contiguous(), b = results[0][i].contiguous();
          CHECK(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
        }
      }
    }
  }
}

TEST_CASE("Update rules: conversions of two-byte numbers are LibTorch's, for every bit pattern and between",
          "[optim]") {
  // An SGD step of rate 0 stores what it loads; one of rate 1 rounds a sum.
  const at::Tensor bits = at::arange(65536, at::kInt).to(at::kShort);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = bits.view(dtype);
    const at::Tensor finite = values.to(at::kFloat).isfinite();
    const at::Tensor chosen = values.masked_select(finite);
    for (const rules::Kernels* set : {&rules::baseline_kernels, &rules::avx2_kernels, &rules::avx512_kernels}) {
      if (!is_supported(*set)) {
        continue;
      }
      CAPTURE(set->name, c10::toString(dtype));
      const at::Tensor param = chosen.clone();
      const at::Tensor grad = chosen.flip({0}).contiguous().to(at::kFloat).mul(0.37);
      const double constants[] = {1, 0, 1};
      rules::Span span{};
      span.param = param.mutable_data_ptr();
      span.grad = grad.const_data_ptr();
      span.count = param.numel();
      span.constants = constants;
      span.param_type = span.state_type = dtype == at::kHalf ? rules::Type::float16 : rules::Type::bfloat16;
      span.grad_type = rules::Type::float32;
      set->update[static_cast<std::size_t>(rules::Kernel::plain_sgd)](span);
      CHECK(at::equal(param, chosen.to(at::kFloat).sub(grad).to(dtype)));
    }
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

TEST_CASE("Update rules: a sum of squares is exact to 1e-13, for numbers of any size", "[optim]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double size : {1.0, 1e-3, 1e-15, 1e-30, 1e15, 1e30}) {
      CAPTURE(dtype, size);
      if (dtype == at::kHalf && (size > 1 || size < 1e-3)) {
        continue;  // outside of its range
      }
      std::vector<at::Tensor> tensors;
      for (const std::int64_t count : {3, 100'000, 17, 513}) {
        tensors.push_back(waves({count}, 0.3, at::kDouble).mul(size).to(dtype));
      }
      double exact = 0;
      for (const auto& tensor : tensors) {
        exact += tensor.to(at::kDouble).square().sum().item().toDouble();
      }
      CHECK(optim::detail::sum_squares(tensors) == Approx(exact).epsilon(1e-13));
    }
  }
  // One large number among small ones, and the reverse.
  for (const double one : {1e-25, 1e25, 3e38}) {
    const at::Tensor mixed = at::full({2000}, 1e-3, at::kFloat);
    mixed[777] = one;
    const double exact = mixed.to(at::kDouble).square().sum().item().toDouble();
    CHECK(optim::detail::sum_squares({mixed}) == Approx(exact).epsilon(1e-13));
  }
  CHECK(optim::detail::sum_squares({at::zeros({1000})}) == 0);
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

// ---- parameters of two bytes ----------------------------------------------------------------------------------------

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

        // It loads, and goes on alike.
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

TEST_CASE("Optimizers: autograd notices that an update changed a parameter that a graph still needs", "[optim]") {
  const at::Tensor weight = at::full({3}, 2.0).set_requires_grad(true);
  const at::Tensor loss = (weight * weight).sum();
  optim::SGD optimizer({weight}, {.lr = 1});
  weight.mutable_grad() = at::full({3}, 1.0);
  optimizer.step();
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("modified by an inplace operation"));
}

}  // namespace update_rules

}  // namespace
