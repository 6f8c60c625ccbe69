// LAMB, Adafactor and Muon: kernels against operations on tensors, threads, layouts, precision, scales, groups, errors.
// tests/optim/optimizer_steps.cpp compares them with Python.
#include <danling/optim/layerwise.hpp>

#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <danling/optim/adam.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/muon.hpp>

#include <optim/rules/layerwise_kernels.hpp>

#include <support/error.hpp>

namespace {

namespace layerwise {

namespace optim = danling::optim;
using danling::ConfigError;
using danling::State;
using danling::StateError;
using danling_test::error_of;
using optim::OptimizerOptions;
using Shapes = std::vector<std::vector<std::int64_t>>;

at::Tensor irregular(const std::vector<std::int64_t>& shape, double phase, at::ScalarType dtype) {
  std::int64_t count = 1;
  for (const auto size : shape) {
    count *= size;
  }
  return at::arange(count, at::kDouble).mul_(1.7).add_(phase).sin_().to(dtype).reshape(shape);
}

struct Net {
  std::vector<at::Tensor> params;
  std::shared_ptr<optim::Optimizer> optimizer;

  Net(const char* type, const OptimizerOptions& options, const Shapes& shapes, at::ScalarType dtype) {
    std::vector<optim::NamedParameter> named;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      params.push_back(irregular(shapes[i], double(i), dtype).set_requires_grad(true));
      named.emplace_back("p" + std::to_string(i), params.back());
    }
    optimizer = optim::build_optimizer({type, options}, named);
  }

  void set_gradients(int step, double factor = 1, std::optional<at::ScalarType> dtype = {}) {
    for (std::size_t i = 0; i < params.size(); ++i) {
      params[i].mutable_grad() =
          irregular(params[i].sizes().vec(), double(i) + 0.3 * step, dtype.value_or(params[i].scalar_type()))
              .mul_(factor);
    }
  }

  void run(int steps) {
    for (int step = 1; step <= steps; ++step) {
      set_gradients(step);
      optimizer->step();
    }
  }
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : a.detach().to(at::kDouble).sub(b.detach().to(at::kDouble)).abs().max().item().toDouble();
}

void check_near(const Net& got, const Net& want, double tolerance) {
  for (std::size_t i = 0; i < got.params.size(); ++i) {
    CAPTURE(i);
    CHECK(distance(got.params[i], want.params[i]) <= tolerance);
  }
}

/// Long rows and columns, several blocks and parts, a batch of matrices, single rows, one element, none.
const Shapes odd_shapes = {{3, 700}, {1031, 3}, {2, 5, 7}, {1, 600}, {70'001}, {}, {0, 3}, {1, 1}};

TEST_CASE("Layerwise: the kernels give the updates of operations on tensors", "[optim][fused]") {
  for (const char* type : {"lamb", "adafactor"}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const bool maximize : {false, true}) {
        CAPTURE(type, dtype, maximize);
        OptimizerOptions options{.lr = 0.05, .weight_decay = 0.1, .maximize = maximize};
        Net kernels(type, options, odd_shapes, dtype);
        options.fused = false;
        Net plain(type, options, odd_shapes, dtype);
        kernels.run(5);
        plain.run(5);
        // The state of two-byte numbers is rounded by both, from sums in another order.
        const double tolerance = dtype == at::kDouble     ? 1e-12
                                 : dtype == at::kFloat    ? 3e-6
                                 : dtype == at::kBFloat16 ? 0.02
                                                          : 2e-3;
        check_near(kernels, plain, tolerance);
      }
    }
  }
}

TEST_CASE("Layerwise: the number of threads and the instruction set change no bit", "[optim]") {
  const int before = at::get_num_threads();
  // One matrix that occupies all threads, and several small ones in parallel.
  const Shapes shapes = {{700, 401}, {300'000}, {128, 64}, {64, 33}, {90'000}};
  for (const char* type : {"lamb", "adafactor"}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      CAPTURE(type, dtype);
      std::vector<at::Tensor> first;
      for (const int threads : {1, 2, 3}) {
        at::set_num_threads(threads);
        Net net(type, {.lr = 0.05, .weight_decay = 0.1}, shapes, dtype);
        net.run(3);
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          if (threads == 1) {
            first.push_back(net.params[i].detach());
          }
          CHECK(at::equal(net.params[i], first[i]));
        }
      }
    }
  }
  at::set_num_threads(before);

  namespace rules = optim::rules;
  std::vector<const rules::Layerwise*> sets = {&rules::baseline_layerwise};
  const std::string cpu = at::get_cpu_capability();
  if (cpu == "AVX2" || cpu == "AVX512") {
    sets.push_back(&rules::avx2_layerwise);
  }
  if (cpu == "AVX512") {
    sets.push_back(&rules::avx512_layerwise);
  }
  const std::int64_t rows = 3;
  const std::int64_t columns = 700;
  std::vector<at::Tensor> params;
  std::vector<double> sums;
  for (const auto* set : sets) {
    at::Tensor param = irregular({rows, columns}, 0.1, at::kFloat);
    const at::Tensor grad = irregular({rows, columns}, 0.7, at::kFloat);
    at::Tensor column = at::zeros({columns});
    at::Tensor row = at::zeros({rows}, at::kDouble);
    rules::Matrix matrix{};
    matrix.param = param.mutable_data_ptr();
    matrix.grad = grad.const_data_ptr();
    matrix.rows = rows;
    matrix.columns = columns;
    double squares = 0;
    set->single.adafactor_sums(matrix, row.mutable_data_ptr<double>(), column.mutable_data_ptr<float>(), &squares);
    const at::Tensor factors = row.to(at::kFloat);
    squares +=
        set->single.adafactor_squares(matrix, factors.const_data_ptr<float>(), column.const_data_ptr<float>(), 1e-3);
    set->single.adafactor_step(matrix, factors.const_data_ptr<float>(), column.const_data_ptr<float>(), 1e-3, 0.9, 0.1);
    params.push_back(param);
    sums.push_back(squares);

    const double constants[] = {-1, 0.1, 0.99, 0.01, 1e-6, 0.1, 0.1, 0.01, 0.05};
    at::Tensor moments[] = {irregular({rows, columns}, 0.2, at::kFloat),
                            irregular({rows, columns}, 0.4, at::kFloat).square()};
    rules::Span span{};
    span.param = param.mutable_data_ptr();
    span.grad = grad.const_data_ptr();
    span.state[0] = moments[0].mutable_data_ptr();
    span.state[1] = moments[1].mutable_data_ptr();
    span.count = param.numel();
    span.constants = constants;
    double lamb[2] = {};
    set->single.lamb_moments(span, lamb);
    set->single.lamb_step(span);
    sums.back() += lamb[0] + lamb[1];
    CHECK(at::equal(params.back(), params.front()));
    CHECK(sums.back() == sums.front());
  }
}

TEST_CASE("Layerwise: a parameter and its gradient may have any strides and share memory", "[optim]") {
  for (const char* type : {"lamb", "adafactor", "muon"}) {
    CAPTURE(type);
    Net dense(type, {.lr = 0.05}, {{6, 4}}, at::kFloat);
    at::Tensor param = dense.params[0].detach().t().clone(at::MemoryFormat::Contiguous).t().set_requires_grad(true);
    const auto optimizer = optim::build_optimizer({type, {.lr = 0.05}}, {{"p", param}});
    at::Tensor shared = at::ones({6, 4});
    std::vector<at::Tensor> halves = {shared.narrow(0, 0, 4).set_requires_grad(true),
                                      shared.detach().narrow(0, 2, 4).set_requires_grad(true)};
    const auto overlapping = optim::build_optimizer({type, {.lr = 0.05}}, {{"a", halves[0]}, {"b", halves[1]}});
    for (int step = 1; step <= 3; ++step) {
      dense.set_gradients(step);
      param.mutable_grad() = dense.params[0].grad().clone();
      dense.optimizer->step();
      optimizer->step();
      for (auto& half : halves) {
        half.mutable_grad() = at::ones({4, 4});
      }
      overlapping->step();
    }
    CHECK(distance(param, dense.params[0]) <= (std::string(type) == "muon" ? 1e-2 : 1e-6));
    CHECK(shared.isfinite().all().item().toBool());
    CHECK(shared.lt(1).all().item().toBool());
  }
}

TEST_CASE("Layerwise: a divisor, and a scale and flag of a device, give the update of divided gradients", "[optim]") {
  for (const char* type : {"lamb", "adafactor", "muon"}) {
    for (const bool fused : {true, false}) {
      CAPTURE(type, fused);
      OptimizerOptions options{.lr = 0.05};
      if (std::string(type) != "muon") {
        options.fused = fused;
      }
      const Shapes shapes = {{6, 4}, {5}};
      Net want(type, options, shapes, at::kFloat);
      Net divided(type, options, shapes, at::kFloat);
      Net scaled(type, options, shapes, at::kFloat);
      const auto number = [](double value) { return at::full({}, value, at::kFloat); };
      for (int step = 1; step <= 4; ++step) {
        want.set_gradients(step);
        want.optimizer->step();
        divided.set_gradients(step, 8);
        divided.optimizer->step(8);
        // As on a device: the flag skips an update with infinite gradients.
        scaled.set_gradients(step, std::numeric_limits<double>::infinity());
        optim::detail::step_on_device(*scaled.optimizer, {2, number(4), number(1)});
        scaled.set_gradients(step, 8);
        optim::detail::step_on_device(*scaled.optimizer, {2, number(4), number(0)});
      }
      const double tolerance = std::string(type) == "muon" ? 1e-2 : 1e-6;
      check_near(divided, want, tolerance);
      check_near(scaled, want, tolerance);
      // Only the device knows the count; save and resume read it there.
      const auto saved = scaled.optimizer->state_dict();
      if (std::string(type) != "muon") {
        CHECK(saved.at("state").at(std::int64_t{0}).at("step").tensor().item().toDouble() == 4);
      }
      scaled.optimizer->load_state_dict(saved);
      want.set_gradients(5);
      want.optimizer->step();
      scaled.set_gradients(5);
      scaled.optimizer->step();
      check_near(scaled, want, tolerance);
    }
  }
}

TEST_CASE("Layerwise: a parameter without dimensions is rounded stochastically too", "[optim]") {
  for (const bool fused : {true, false}) {
    Net wide("lamb", {.lr = 1e-2}, {{}}, at::kFloat);
    Net random("lamb", {.lr = 1e-2, .fused = fused, .stochastic_rounding = true}, {{}}, at::kBFloat16);
    {
      const at::NoGradGuard no_grad;
      wide.params[0].fill_(0.75);
      random.params[0].fill_(0.75);
    }
    wide.run(1);
    random.run(1);
    CHECK(random.params[0].item().toDouble() == Approx(wide.params[0].item().toDouble()).epsilon(0x1p-7));
  }
}

TEST_CASE("Layerwise: master weights are a float32 run, stochastic rounding loses nothing on average", "[optim]") {
  for (const char* type : {"lamb", "adafactor"}) {
    for (const bool fused : {true, false}) {
      CAPTURE(type, fused);
      const Shapes shapes = {{40, 30}, {600}};
      Net wide(type, {.lr = 1e-3}, shapes, at::kFloat);
      Net narrow(type, {.lr = 1e-3, .fused = fused, .master_weights = true}, shapes, at::kBFloat16);
      Net random(type, {.lr = 1e-3, .fused = fused, .stochastic_rounding = true}, shapes, at::kBFloat16);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const at::NoGradGuard no_grad;
        wide.params[i].copy_(narrow.params[i]);  // the same start
      }
      for (int step = 0; step < 20; ++step) {
        narrow.set_gradients(0);
        random.set_gradients(0);
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          wide.params[i].mutable_grad() = narrow.params[i].grad().to(at::kFloat);
        }
        wide.optimizer->step();
        narrow.optimizer->step();
        random.optimizer->step();
      }
      double moved = 0;
      double moved_at_random = 0;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        CHECK(distance(narrow.params[i], wide.params[i].to(at::kBFloat16)) <= 0x1p-8);
        const at::Tensor start = irregular(shapes[i], double(i), at::kBFloat16).to(at::kDouble);
        const at::Tensor sign = narrow.params[i].grad().to(at::kDouble).sign();
        moved += wide.params[i].detach().to(at::kDouble).sub(start).mul(sign).sum().item().toDouble();
        moved_at_random += random.params[i].detach().to(at::kDouble).sub(start).mul(sign).sum().item().toDouble();
      }
      CHECK(moved_at_random == Approx(moved).epsilon(0.1));
      // A program's change of a parameter replaces its copy, and the state resumes bit for bit.
      {
        const at::NoGradGuard no_grad;
        narrow.params[0].fill_(3);
      }
      Net resumed(type, {.lr = 1e-3, .fused = fused, .master_weights = true}, shapes, at::kBFloat16);
      resumed.optimizer->load_state_dict(narrow.optimizer->state_dict());
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const at::NoGradGuard no_grad;
        resumed.params[i].copy_(narrow.params[i]);
      }
      for (auto* net : {&narrow, &resumed}) {
        net->set_gradients(7);
        net->optimizer->step();
      }
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        CHECK(at::equal(narrow.params[i], resumed.params[i]));
      }
      CHECK(distance(narrow.params[0], at::full({40, 30}, 3.0)) < 0.05);
    }
  }
}

TEST_CASE("Layerwise: an update keeps no gradient", "[optim]") {
  for (const char* type : {"lamb", "adafactor"}) {
    for (const bool fused : {true, false}) {
      CAPTURE(type, fused);
      Net net(type, {.fused = fused}, {{40, 30}, {600}, {300, 400}}, at::kFloat);
      net.set_gradients(0);
      net.optimizer->step();
      for (const at::Tensor& param : net.params) {
        CHECK(param.grad().use_count() == 1);
      }
    }
  }
}

TEST_CASE("LAMB: master weights that are set after the first update keep small updates", "[optim]") {
  Net net("lamb", {.lr = 1e-5}, {{600}}, at::kBFloat16);
  net.set_gradients(0);
  net.optimizer->step();
  auto& lamb = dynamic_cast<optim::LayerwiseOptimizer&>(*net.optimizer);
  auto options = lamb.options(0);
  options.master_weights = true;
  lamb.set_options(0, options);
  const at::Tensor before = net.params[0].detach().clone();
  for (int step = 0; step < 400; ++step) {
    net.set_gradients(0);
    net.optimizer->step();
  }
  CHECK(net.optimizer->state_dict().at("state").map().begin()->value.find("master_param") != nullptr);
  CHECK_FALSE(at::equal(net.params[0], before));
}

TEST_CASE("LAMB: a parameter of zeros takes a whole step, a larger one a longer step", "[optim]") {
  at::Tensor zeros = at::zeros({4}).set_requires_grad(true);
  at::Tensor ones = at::ones({4}).set_requires_grad(true);
  at::Tensor tens = at::full({4}, 10.0).set_requires_grad(true);
  optim::LAMB optimizer({zeros, ones, tens}, {.lr = 0.1, .weight_decay = 0});
  for (auto* param : {&zeros, &ones, &tens}) {
    param->mutable_grad() = at::full({4}, 0.5);
  }
  optimizer.step();
  // Adam's first step is 1 for each element; the trust ratio is the parameter's size.
  CHECK(zeros[0].item().toDouble() == Approx(-0.1).epsilon(1e-5));
  CHECK(ones[0].item().toDouble() == Approx(0.9).epsilon(1e-5));
  CHECK(tens[0].item().toDouble() == Approx(9).epsilon(1e-5));
}

// ---- Muon -----------------------------------------------------------------------------------------------------------

std::vector<optim::NamedParameter> mixed_parameters() {
  std::vector<optim::NamedParameter> out;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {"embedding.weight", {7, 4}}, {"body.weight", {4, 4}}, {"body.bias", {4}}, {"conv.weight", {2, 3, 3, 3}}}) {
    out.emplace_back(name, irregular(shape, 0.3, at::kFloat).set_requires_grad(true));
  }
  return out;
}

TEST_CASE("Muon: matrices are Muon's, all others AdamW's, with the learning rates of their groups", "[optim]") {
  const auto params = mixed_parameters();
  const auto optimizer = optim::build_optimizer(
      {"muon", {.lr = 0.02, .adamw_lr = 3e-4, .adamw_betas = {{0.9, 0.95}}}, {{"embedding", {.use_muon = false}}}},
      params);
  const auto& muon = dynamic_cast<optim::Muon&>(*optimizer);
  const auto& groups = optimizer->param_groups();
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].names == std::vector<std::string>{"embedding.weight"});
  CHECK(groups[1].names == std::vector<std::string>{"body.weight"});
  CHECK(groups[2].names == std::vector<std::string>{"body.bias", "conv.weight"});
  CHECK(!muon.is_muon(0));
  CHECK(muon.is_muon(1));
  CHECK(!muon.is_muon(2));
  CHECK(groups[1].lr == 0.02);
  CHECK(groups[1].weight_decay == 0.1);
  CHECK(groups[2].lr == 3e-4);
  CHECK(groups[2].weight_decay == 0.01);
  CHECK(muon.options(2).betas == std::pair(0.9, 0.95));

  // Each part equals one of the two optimizers alone, also when a schedule changes a rate.
  std::vector<at::Tensor> alone;
  for (const auto& [name, param] : params) {
    alone.push_back(param.detach().clone().set_requires_grad(true));
  }
  optim::Muon matrix({alone[1]}, {.lr = 0.02});
  optim::AdamW others({alone[0], alone[2], alone[3]}, {.lr = 3e-4, .betas = {{0.9, 0.95}}});
  for (int step = 0; step < 4; ++step) {
    for (std::size_t i = 0; i < alone.size(); ++i) {
      params[i].second.mutable_grad() = irregular(alone[i].sizes().vec(), double(step), at::kFloat);
      alone[i].mutable_grad() = params[i].second.grad().clone();
    }
    if (step == 2) {
      for (auto& group : optimizer->param_groups()) {
        group.lr *= 0.5;
      }
      matrix.param_groups()[0].lr *= 0.5;
      others.param_groups()[0].lr *= 0.5;
    }
    optimizer->step();
    matrix.step();
    others.step();
  }
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(at::equal(alone[i], params[i].second));
  }

  // The state consists of both optimizers' states, and loads.
  const State saved = optimizer->state_dict();
  CHECK(saved.at("state").at(std::int64_t{1}).map().size() == 1);
  CHECK(saved.at("param_groups").items()[2].find("betas") != nullptr);
  CHECK(saved.at("param_groups").items()[1].find("ns_steps") != nullptr);
  auto again = mixed_parameters();
  const auto other =
      optim::build_optimizer({"muon", {.lr = 1, .adamw_lr = 1}, {{"embedding", {.use_muon = false}}}}, again);
  other->load_state_dict(saved);
  CHECK(danling::first_difference(other->state_dict(), saved).empty());
  CHECK(other->param_groups()[1].lr == 0.01);
  CHECK(other->param_groups()[2].lr == 1.5e-4);
}

TEST_CASE("Muon: the rate of the others is that of AdamW, unless both share one scale", "[optim]") {
  const auto rate = [](const OptimizerOptions& options) {
    return optim::build_optimizer({"muon", options}, mixed_parameters())->param_groups()[1].lr;
  };
  CHECK(rate({.lr = 0.02}) == 1e-3);
  CHECK(rate({.lr = 0.02, .adjust_lr_fn = "match_rms_adamw"}) == 0.02);
  CHECK(rate({.lr = 0.02, .adjust_lr_fn = "match_rms_adamw", .adamw_lr = 0.5}) == 0.5);
}

TEST_CASE("Layerwise: wrong options, parameters and states are refused with one line", "[optim]") {
  const auto refused = [](const char* type, const OptimizerOptions& options) {
    return error_of<ConfigError>([&] { optim::build_optimizer({type, options}, {{"p", at::ones({2, 2})}}); });
  };
  CHECK(refused("lamb", {.eps = -1}) == "[LAMB.options] expected eps to be 0 or more, got -1.0");
  CHECK(refused("lamb", {.betas = {{0.9, 1}}}) == "[LAMB.options] expected betas from 0 to below 1, got 1.0");
  CHECK(refused("lamb", {.nesterov = true}) ==
        "[optim] expected options of lamb (lr, weight_decay, betas, eps, maximize, fused, master_weights, "
        "stochastic_rounding), got 'nesterov'");
  CHECK(refused("adafactor", {.beta2_decay = 0.5}) ==
        "[Adafactor.options] expected beta2_decay to be 0 or less, got 0.5");
  CHECK(refused("adafactor", {.d = 0.5}) == "[Adafactor.options] expected d to be 1 or more, got 0.5");
  CHECK(refused("muon", {.ns_steps = 100}) == "[Muon.options] expected ns_steps from 1 to 99, got 100");
  CHECK(refused("muon", {.ns_coefficients = {{1, 2}}}) == "[Muon.options] expected three ns_coefficients, got 2");
  CHECK(refused("muon", {.adjust_lr_fn = "none"}) ==
        "[Muon.options] expected adjust_lr_fn original or match_rms_adamw, got 'none'");
  CHECK(refused("muon", {.adamw_betas = {{0.9, 1}}}) == "[AdamW.options] expected betas from 0 to below 1, got 1.0");
  CHECK(error_of<ConfigError>([] { optim::LAMB({at::zeros({2}, at::kComplexFloat)}); }) ==
        "[LAMB.add_param_group] expected real parameters, got a complex one");
  Net net("adafactor", {}, {{3, 4}}, at::kFloat);
  net.run(1);
  Net other("adafactor", {}, {{4, 4}}, at::kFloat);
  CHECK(error_of<StateError>([&] { other.optimizer->load_state_dict(net.optimizer->state_dict()); }) ==
        "[Adafactor.load_state_dict] expected row_var of 'p0' with shape [4, 1], got [3, 1]");
  net.params[0].mutable_grad() = at::ones({2, 4});
  CHECK(error_of<StateError>([&] { net.optimizer->step(); }) ==
        "[Adafactor.step] expected the gradient of 'p0' with shape [3, 4], got [2, 4]");
  Net adamw("adamw", {}, {{3, 4}}, at::kFloat);
  Net muon("muon", {}, {{3, 4}}, at::kFloat);
  CHECK(error_of<StateError>([&] { muon.optimizer->load_state_dict(adamw.optimizer->state_dict()); }) ==
        "[Muon.load_state_dict] expected the options of this kind of optimizer in param_groups[0], got 'betas'");
}

}  // namespace layerwise
}  // namespace
