// Python's own objects in checkpoints, a checkpoint of DanLing's, and optimizers that go on in the other language.
#include <support/python.hpp>

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>

#include <danling/checkpoint/file.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace python_checkpoints {
namespace {

using danling::State;

std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / ("checkpoint_" + name + ".pth");
}

// objects() of tests/golden/checkpoint_python.py.
State expected_objects() {
  State out;
  State& arrays = out["arrays"];
  arrays["int16"] = State::List{State::List{1, -2}, State::List{3, 4}};
  arrays["columns"] = State::List{State::List{0.0, 1.0, 2.0}, State::List{3.0, 4.0, 5.0}};
  arrays["float32"] = State::List{0.5, static_cast<double>(-0.1F)};
  arrays["bool"] = State::List{true, false};
  arrays["uint8"] = State::List{0, 1, 2};
  arrays["uint64"] = State::List{std::numeric_limits<std::int64_t>::max()};
  arrays["empty"] = State::List{};
  arrays["hollow"] = State::List{State::List{}, State::List{}};
  arrays["zero_dim"] = 2.5;
  out["numbers"] = State::List{0.1, -0.5, -7, 255, true};
  out["sets"] = State::List{State::List{7}, State::List{"one"}, State::List{}};
  State& maps = out["maps"];
  maps["default"]["a"] = State::List{1};
  maps["counter"] = State::Map{{"a", 2}, {"b", 1}};
  maps["config"]["lr"] = 0.1;
  maps["config"]["optim"]["name"] = "sgd";
  maps["nested"]["a"]["b"] = 1;
  out["devices"] = State::List{"cuda:1", "cpu"};
  out["tensors"]["attribute"] = at::arange(2, at::kFloat);
  out["tensors"]["parameter"] = at::arange(3, at::kFloat).set_requires_grad(true);
  out["tensors"]["buffer"] = at::arange(4, at::kFloat);
  return out;
}

TEST_CASE("load_file: numpy's arrays, sets, configs and devices come as plain values", "[checkpoint]") {
  for (const char* name : {"objects2", "objects5"}) {
    CAPTURE(name);
    CHECK(danling::first_difference(danling::load_file(golden_file(name)), expected_objects()) == "");
  }
}

// tests/golden/danling_checkpoint.py: two epochs of two batches, AdamW, a schedule, an EMA, seed 7.
TEST_CASE("load_file: opens what DanLing's TorchRunner saves", "[checkpoint]") {
  const State state = danling::load_file(golden_file("danling"));
  CHECK(state.at("runner").at("seed").integer() == 7);
  CHECK(state.at("state").at("train").at("global_step").integer() == 4);
  const State& random = state.at("state").at("rng");
  CHECK(random.at("torch_cpu").tensor().sizes() == at::IntArrayRef({5056}));
  // random.getstate(): version, 624 words and a position, the spare of gauss().
  CHECK(random.at("python").tuple().at(0).integer() == 3);
  CHECK(random.at("python").tuple().at(1).tuple().size() == 625);
  // numpy.random.get_state() after numpy.random.seed(7): the first word of the generator's state is the seed.
  const auto& numpy = random.at("numpy").tuple();
  CHECK(numpy.at(0).string() == "MT19937");
  CHECK(numpy.at(1).list().size() == 624);
  CHECK(numpy.at(1).list().at(0).integer() == 7);
  CHECK(numpy.at(2).integer() == 624);
  CHECK(state.at("dataloaders").at("train").at("_num_yielded").integer() == 2);
  CHECK(state.at("optimizer").at("state").at(0).at("step").tensor().item<float>() == 4.0F);
  CHECK(state.at("optimizer").at("param_groups").list().at(0).at("betas").tuple().at(1).number() == 0.999);
  // The scheduler keeps its own methods; their names are what is left of them.
  const State& scheduler = state.at("scheduler");
  CHECK(scheduler.at("strategies").at("cosine").string() == "cosine");
  CHECK(scheduler.at("method").string() == "linear");
  CHECK(scheduler.at("last_epoch").integer() == 4);
  CHECK(scheduler.at("base_lrs").list().at(0).number() == 0.125);
  CHECK(state.at("ema").at("module.weight").tensor().sizes() == at::IntArrayRef({1, 1}));
  CHECK(state.at("model").at("weight").tensor().sizes() == at::IntArrayRef({1, 1}));
}

TEST_CASE("load_file: the format before PyTorch 1.6 is refused with the way out", "[checkpoint]") {
  const std::string path = golden_file("legacy").string();
  CHECK(
      danling_test::error_of<danling::CheckpointError>([&] { danling::load_file(path); }) ==
      "[checkpoint.read] expected a PyTorch zip archive, got the format before PyTorch 1.6; convert it in Python with "
      "torch.save(torch.load(path), path) (file '" +
          path + "')");
}

using Parameters = std::vector<at::Tensor>;

std::shared_ptr<danling::optim::Optimizer> make_optimizer(const std::string& kind, const Parameters& params,
                                                          bool defaults) {
  const std::vector<std::string> names = {"weight", "bias"};
  namespace optim = danling::optim;
  if (kind == "sgd") {
    return std::make_shared<optim::SGD>(params,
                                        defaults
                                            ? optim::OptimizerOptions{}
                                            : optim::OptimizerOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
                                        names);
  }
  if (kind == "adam") {
    return std::make_shared<optim::Adam>(
        params,
        defaults ? optim::OptimizerOptions{}
                 : optim::OptimizerOptions{.lr = 0.05, .betas = {{0.8, 0.95}}, .amsgrad = true},
        names);
  }
  return std::make_shared<optim::AdamW>(
      params, defaults ? optim::OptimizerOptions{} : optim::OptimizerOptions{.lr = 0.05, .weight_decay = 0.2}, names);
}

// Four steps with the gradients of tests/golden/checkpoint_python.py.
void four_steps(danling::optim::Optimizer& optimizer, const Parameters& params, std::int64_t first) {
  for (std::int64_t step = first; step < first + 4; ++step) {
    for (const auto& param : params) {
      param.mutable_grad() = 0.3 * param.detach() + 0.01 * static_cast<double>(step);
    }
    optimizer.step();
  }
}

State saved(const danling::optim::Optimizer& optimizer, const Parameters& params, std::int64_t step) {
  State out;
  out["params"] = State::List{params[0].detach(), params[1].detach()};
  out["optimizer"] = optimizer.state_dict();
  out["step"] = step;
  return out;
}

Parameters params_of(const State& state) {
  Parameters out;
  for (const auto& param : state.at("params").list()) {
    out.push_back(param.tensor().clone().set_requires_grad(true));
  }
  return out;
}

void check_close(const Parameters& params, const State& state) {
  for (std::size_t i = 0; i < params.size(); ++i) {
    CHECK(at::allclose(params[i].detach(), state.at("params").list().at(i).tensor(), 1e-6, 1e-7));
  }
}

TEST_CASE("optimizers: what one language saves the other goes on with, to the same numbers", "[checkpoint][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  for (const std::string kind : {"sgd", "adam", "adamw"}) {
    CAPTURE(kind);
    const danling_test::TempDir directory;
    const auto python = [&](const std::string& from, const std::string& to) {
      REQUIRE(danling_test::run_python("tests/golden/checkpoint_python.py",
                                       {"go-on", kind, (directory / from).string(), (directory / to).string()}));
      return danling::load_file(directory / to);
    };
    Parameters params = {at::linspace(-1, 1, 6).reshape({2, 3}).set_requires_grad(true),
                         at::linspace(0.5, 2, 4).set_requires_grad(true)};
    const auto ours = make_optimizer(kind, params, false);
    four_steps(*ours, params, 0);
    danling::save_file(saved(*ours, params, 4), directory / "ours4.pth");
    four_steps(*ours, params, 4);
    const State theirs8 = python("ours4.pth", "theirs8.pth");
    CHECK(theirs8.at("step").integer() == 8);
    check_close(params, theirs8);

    Parameters resumed = params_of(theirs8);
    const auto again = make_optimizer(kind, resumed, true);  // all options come with the state
    again->load_state_dict(theirs8.at("optimizer"));
    four_steps(*again, resumed, 8);
    check_close(resumed, python("theirs8.pth", "theirs12.pth"));
  }
}

}  // namespace
}  // namespace python_checkpoints
