// Activation recompute by config.
#include "fixture.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

TinyConfig recomputing(TinyConfig config) {
  config.recompute = {"^[0-2]$"};
  return config;
}

TEST_CASE("recompute: a run is the same bit for bit, also stopped, resumed, accumulated and under autocast",
          "[runner]") {
  TinyConfig config;
  config.epochs = 3;
  config.accum_steps = 2;
  config.max_grad_norm = 0.5;
  for (const std::string precision : {"fp32", "bf16"}) {
    CAPTURE(precision);
    config.precision = precision;
    const Outcome plain = run_through(config);
    check_same(run_through(recomputing(config)), plain);
    check_same(run_stopped(recomputing(config), {3, 5}), plain);
  }
}

TEST_CASE("recompute: the log names the modules, and the names of weights stay", "[runner]") {
  const Folder folder;
  TinyConfig config = recomputing(TinyConfig(folder));
  config.epochs = 1;
  TinyRunner runner(config);
  runner.train();
  runner.close();
  CHECK_THAT(logs_of(runner.workspace().dir()),
             ContainsSubstring("the activations of 3 modules are recomputed: 0, 1, 2"));
  CHECK(runner.model.state_dict().find("0.weight") != nullptr);
}

TEST_CASE("recompute: a pattern that finds no module, and models without modules, are refused", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.recompute = {"layers"};
  const auto error = [&](dl::ModelHandle model) {
    TinyRunner runner(config);
    if (model) runner.model = model;
    return error_of<dl::ConfigError>([&] { runner.initialize(); });
  };
  CHECK(error({}) == "[nn.recompute_modules] expected a pattern found in a module's name (0, 1, 2, 3), got 'layers'");
  CHECK(error([](const at::Tensor& x) { return x; }) ==
        "[runner.recompute] expected models that are torch::nn modules, got a function; unset 'recompute'");
  torch::jit::Module script("Script");
  script.define("def forward(self, x):\n    return x\n");
  CHECK(error(script) ==
        "[runner.recompute] expected models that are torch::nn modules, got a TorchScript module; unset 'recompute'");
}

}  // namespace
}  // namespace runner_test
