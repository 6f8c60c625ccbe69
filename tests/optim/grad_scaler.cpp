// Dynamic loss scaling beside torch.amp.GradScaler (tests/golden/grad_scaler.py).
#include <danling/optim/grad_scaler.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/checkpoint/io.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/clip.hpp>
#include <danling/optim/sgd.hpp>

#include <support/cuda.hpp>
#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace scaling {

namespace optim = danling::optim;
using danling::State;
using danling::StateError;
using danling_test::error_of;
using optim::GradScaler;
using Json = nlohmann::json;

const Json& numbers() {
  static const Json document = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/grad_scaler.json");
    REQUIRE(file.good());
    return Json::parse(file);
  }();
  return document["cases"];
}

optim::GradScalerOptions options_of(const Json& json) {
  optim::GradScalerOptions out;
  const auto read = [&](const char* key, auto& value) {
    if (json.contains(key)) {
      value = json[key].get<typename std::remove_reference_t<decltype(value)>::value_type>();
    }
  };
  read("init_scale", out.init_scale);
  read("growth_factor", out.growth_factor);
  read("backoff_factor", out.backoff_factor);
  read("growth_interval", out.growth_interval);
  return out;
}

constexpr int size = 5;

at::Tensor gradient(int step, bool overflows) {
  at::Tensor values = at::arange(size, at::kDouble).add_(step).mul_(0.3).sin_().to(at::kFloat);
  if (overflows) {
    values[step % size] =
        step % 2 != 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

void check_case(const std::string& name, at::Device device) {
  const Json& expected = numbers()[name];
  const auto overflows = expected["overflows"].get<std::vector<int>>();
  at::Tensor weight = at::arange(size, at::kFloat).to(device).set_requires_grad(true);
  optim::Adam optimizer({weight}, {.lr = 0.05});
  GradScaler scaler(device, options_of(expected["options"]));
  std::size_t row = 0;
  for (int step = 0; step < 200; ++step) {
    CAPTURE(name, step);
    optimizer.zero_grad();
    const bool overflow = std::find(overflows.begin(), overflows.end(), step) != overflows.end();
    scaler.scale(at::mul(weight, gradient(step, overflow).to(device)).sum()).backward();
    if (!expected["clip"].is_null()) {
      scaler.unscale(optimizer);
      optim::clip_grad_norm({weight}, expected["clip"].get<double>());
    }
    scaler.step(optimizer);
    scaler.update();
    CHECK(scaler.get_scale() == expected["scales"][step].get<double>());
    CHECK(scaler.growth_tracker() == expected["trackers"][step].get<std::int64_t>());
    if ((step + 1) % 20 == 0) {
      const auto want = expected["weights"][row++].get<std::vector<double>>();
      CHECK(at::allclose(weight.detach().cpu().to(at::kDouble), at::tensor(want, at::kDouble), 1e-6, 1e-6));
    }
  }
  const State state = scaler.state_dict();
  std::size_t i = 0;
  REQUIRE(state.map().size() == expected["state"].size());
  for (const auto& [key, value] : state.map()) {
    CHECK(key.string() == expected["state"][i][0].get<std::string>());
    CHECK(value.number() == expected["state"][i][1].get<double>());
    CHECK(value.is_integer() == expected["state"][i][1].is_number_integer());
    ++i;
  }
}

TEST_CASE("GradScaler: scale, count and weights of torch.amp.GradScaler over 200 steps with overflows", "[optim]") {
  for (const auto* name : {"defaults", "growing", "clipped"}) {
    check_case(name, at::kCPU);
  }
}

TEST_CASE("GradScaler: the same on a GPU", "[optim][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  for (const auto* name : {"defaults", "growing", "clipped"}) {
    check_case(name, at::kCUDA);
  }
}

TEST_CASE("GradScaler: a step that threw can be repeated, and divides by the scale then too", "[optim]") {
  const at::Tensor weight = at::zeros({2}).set_requires_grad(true);
  optim::SGD optimizer({weight}, {.lr = 1.0, .momentum = 0.9});
  GradScaler scaler(at::kCPU, {.init_scale = 4.0});
  weight.mutable_grad() = at::full({2}, 4.0).to_sparse();
  CHECK_THROWS_AS(scaler.step(optimizer), danling::StateError);
  weight.mutable_grad() = at::full({2}, 4.0);
  scaler.step(optimizer);
  CHECK(weight.detach().equal(at::full({2}, -1.0)));
}

TEST_CASE("GradScaler: its state continues in another and in Python, and Python's in it", "[optim]") {
  GradScaler scaler(at::kCPU, {.init_scale = 3.0, .growth_interval = 2});
  const at::Tensor none = at::full({}, 0.0F);
  scaler.update(none);
  GradScaler other;
  other.load_state_dict(scaler.state_dict());
  CHECK(other.get_scale() == 3.0);
  other.update(none);
  CHECK(other.get_scale() == 6.0);
  CHECK(other.growth_tracker() == 0);

  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch");
    return;
  }
  const danling_test::TempDir dir;
  const auto file = dir / "scaler.pth";
  danling::save(scaler, file);
  REQUIRE(danling_test::run_python("tests/golden/grad_scaler.py", {file.string()}));
  other.load_state_dict(danling::load(file));
  CHECK(other.get_scale() == 3.0);  // doubled by the first step, halved by the second
  CHECK(other.growth_tracker() == 0);
}

TEST_CASE("GradScaler: several optimizers share one scale, and the overflow of one leaves the other's update",
          "[optim]") {
  at::Tensor good = at::ones({2}).set_requires_grad(true);
  at::Tensor bad = at::ones({2}).set_requires_grad(true);
  optim::SGD first({good}, {.lr = 1.0});
  optim::SGD second({bad}, {.lr = 1.0});
  GradScaler scaler(at::kCPU, {.init_scale = 4.0});
  good.mutable_grad() = at::full({2}, 2.0F);  // 0.5 unscaled
  bad.mutable_grad() = at::full({2}, std::numeric_limits<float>::infinity());
  scaler.step(first);
  scaler.step(second);
  scaler.update();
  CHECK(good[0].item().toDouble() == 0.5);
  CHECK(bad[0].item().toDouble() == 1.0);
  CHECK(scaler.get_scale() == 2.0);
}

TEST_CASE("GradScaler: its factor and flag go through clipping into one pass of the optimizer", "[optim]") {
  at::Tensor weight = at::ones({4}).set_requires_grad(true);
  at::Tensor expected = at::ones({4}).set_requires_grad(true);
  optim::AdamW optimizer({weight}, {.lr = 0.1});
  optim::AdamW reference({expected}, {.lr = 0.1});
  GradScaler scaler(at::kCPU, {.init_scale = 1024.0});
  for (int step = 0; step < 5; ++step) {
    const bool overflow = step == 2;
    const at::Tensor grad = gradient(step, false).slice(0, 0, 4).clone();
    weight.mutable_grad() = grad.mul(overflow ? std::numeric_limits<double>::infinity() : 2.0 * 1024.0);
    optim::GradScale scale{.divisor = 2.0, .scale = scaler.factor()};
    optim::clip_grad_norm({weight}, 0.5, scale);
    optimizer.step(scale);
    scaler.update(scale.found_inf.defined() ? scale.found_inf : at::full({}, 0.0F));
    if (!overflow) {
      expected.mutable_grad() = grad;
      optim::clip_grad_norm({expected}, 0.5);
      reference.step();
    }
    CHECK(at::allclose(weight, expected, 1e-6, 1e-6));
  }
  CHECK(scaler.get_scale() == 512.0);
}

TEST_CASE("GradScaler: wrong calls, options and states are one line each", "[optim]") {
  const auto refused = [](const optim::GradScalerOptions& options) {
    return error_of<danling::ConfigError>([&] { GradScaler(at::kCPU, options); });
  };
  CHECK(refused({.init_scale = 0.0}) == "[optim.GradScaler] expected a positive, finite scale, got 0.0");
  CHECK(refused({.growth_factor = 1.0}) == "[optim.GradScaler] expected a growth_factor above 1, got 1.0");
  CHECK(refused({.backoff_factor = 1.0}) == "[optim.GradScaler] expected a backoff_factor between 0 and 1, got 1.0");
  CHECK(refused({.growth_interval = 0}) == "[optim.GradScaler] expected a growth_interval of at least 1, got 0");

  at::Tensor weight = at::ones({2}).set_requires_grad(true);
  weight.mutable_grad() = at::ones({2});
  optim::SGD optimizer({weight}, {.lr = 1.0});
  GradScaler scaler;
  CHECK(error_of<StateError>([&] { scaler.update(); }) ==
        "[optim.GradScaler.update] expected step() or unscale() of an optimizer before, got none since the last "
        "update()");
  scaler.unscale(optimizer);
  CHECK(error_of<StateError>([&] { scaler.unscale(optimizer); }) ==
        "[optim.GradScaler.unscale] expected one call per optimizer before update(), got another after unscale() "
        "or step()");
  scaler.step(optimizer);
  CHECK(error_of<StateError>([&] { scaler.step(optimizer); }) ==
        "[optim.GradScaler.step] expected one call per optimizer before update(), got a second");
  scaler.update();

  at::Tensor half = at::ones({2}, at::kHalf).set_requires_grad(true);
  half.mutable_grad() = at::ones({2}, at::kHalf);
  optim::SGD of_half({half}, {.lr = 1.0});
  CHECK(error_of<StateError>([&] { scaler.unscale(of_half); }) ==
        "[optim.GradScaler.unscale] expected gradients that float16 cannot round to zero, got float16 ones; call "
        "step() alone, which divides in float32");

  State state = scaler.state_dict();
  const auto refused_state = [&](const State& bad) {
    return error_of<StateError>([&] { scaler.load_state_dict(bad); });
  };
  CHECK(refused_state(State(State::Map())) ==
        "[optim.GradScaler.load_state_dict] expected the state of a GradScaler, got an empty map, as a disabled one "
        "saves");
  state["growth_interval"] = 2.5;
  CHECK(refused_state(state) ==
        "[optim.GradScaler.load_state_dict] expected an integer for 'growth_interval', got a number");
  state.map().erase("growth_interval");
  CHECK(refused_state(state) ==
        "[optim.GradScaler.load_state_dict] expected an integer for 'growth_interval', got none");
  CHECK(scaler.get_scale() == 65536.0);
}

}  // namespace scaling

}  // namespace
