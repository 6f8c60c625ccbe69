// LoRA beside other settings of a run: optimizers that evaluate again, optimizers of the program, frozen parameters.
#include <danling/nn/lora.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

using Names = std::vector<std::string>;

TinyConfig adapted_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 1;
  config.lora.target_modules = Names{"^0$"};
  config.lora.r = 2;
  config.lora.lora_alpha = 4;
  return config;
}

TEST_CASE("lora: LBFGS evaluates with the adapters of each point, as torch's LBFGS on A and B", "[runner]") {
  const Folder folder;
  TinyConfig config = adapted_config(folder);
  config.dropout = 0;
  config.records = 24;
  config.dataloader.batch_size = 24;
  config.dataloader.shuffle = false;
  config.optim = {};
  config.optim.type = "lbfgs";
  config.optim.lr = 0.5;
  config.optim.max_iter = 5;
  TinyRunner runner(config);
  runner.initialize();
  const dl::State begin = dl::clone(runner.model.state_dict());
  at::Tensor a = begin.at("0.lora_A.weight").tensor().clone().set_requires_grad(true);
  at::Tensor b = begin.at("0.lora_B.weight").tensor().clone().set_requires_grad(true);
  const auto points = make_points(24, 0);
  torch::optim::LBFGS reference({a, b}, torch::optim::LBFGSOptions(0.5).max_iter(5));
  const auto loss = [&] {
    reference.zero_grad();
    const auto weight = begin.at("0.weight").tensor() + 2 * at::mm(b, a);
    const auto hidden = at::linear(points.input, weight, begin.at("0.bias").tensor()).relu();
    const auto out = at::linear(hidden, begin.at("3.weight").tensor(), begin.at("3.bias").tensor());
    const at::Tensor value = torch::nn::functional::cross_entropy(out, points.target);
    value.backward();
    return value;
  };
  reference.step(loss);
  runner.train();
  const dl::State after = runner.model.state_dict();
  CHECK(torch::allclose(after.at("0.lora_A.weight").tensor(), a, 1e-3, 1e-5));
  CHECK(torch::allclose(after.at("0.lora_B.weight").tensor(), b, 1e-3, 1e-5));
  CHECK(b.abs().max().item<double>() > 1e-3);
}

TEST_CASE("lora: an optimizer that the program built before the adapters is refused", "[runner]") {
  struct Own : TinyRunner {
    explicit Own(const TinyConfig& config) : TinyRunner(config) {
      optimizer = dl::optim::adapt_torch_optimizer(
          std::make_shared<torch::optim::SGD>(model.as<torch::nn::Sequential>()->parameters(), 0.1));
    }
  };
  const Folder folder;
  TinyConfig config = adapted_config(folder);
  config.optim = {};
  config.lora.bias = "all";
  Own runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.initialize(); }) ==
        "[runner.build_optimizer] expected the adapter '0.lora_A.weight' among the parameters of `optimizer`, got an "
        "optimizer that the program built before the adapters; leave it unset and set optim.type, or build it in "
        "build_optimizer()");

  // Built in the hook, it has them.
  struct Hooked : TinyRunner {
    using TinyRunner::TinyRunner;
    void build_optimizer() override {
      std::vector<at::Tensor> trained;
      for (const auto& [name, parameter] : model.named_parameters()) {
        if (parameter.requires_grad()) trained.push_back(parameter);
      }
      optimizer = dl::optim::adapt_torch_optimizer(std::make_shared<torch::optim::SGD>(trained, 0.1));
      TinyRunner::build_optimizer();
    }
  };
  const Folder other;
  config.workspace_root = other.path().string();
  Hooked hooked(config);
  hooked.train();
  CHECK(hooked.model.state_dict().at("0.lora_B.weight").tensor().abs().sum().item<double>() > 0);
}

TEST_CASE("lora: settings that contradict each other, or train nothing, are refused", "[runner]") {
  const Folder folder;
  TinyConfig config = adapted_config(folder);
  config.lora.modules_to_save = Names{"^3"};
  config.optim.freeze = Names{"bias$"};
  TinyRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.initialize(); }) ==
        "[runner.materialize_model] expected '3.bias' in lora.modules_to_save or in optim.freeze, got both");
  config.lora.modules_to_save = Names{"^3.weight"};
  TinyRunner narrower(config);
  narrower.initialize();
  config.lora.lora_alpha = 0;
  CHECK(error_of<dl::ConfigError>([&] { dl::validate(config); }) ==
        "[config.validate] expected a value above 0 for 'lora.lora_alpha', got 0.0");
}

TEST_CASE("pretrained: a file that does not exist is an error of the config", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.pretrained = "nowhere.pth";
  TinyRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.initialize(); }) ==
        "[runner.load_pretrained] expected an existing file as 'pretrained', got 'nowhere.pth'");
}

}  // namespace
}  // namespace runner_test
