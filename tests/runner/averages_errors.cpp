// Options of ema and swa that exclude each other, or that a model or a run cannot have.
#include <torch/csrc/jit/api/module.h>

#include "fixture.hpp"
#include "hosted.hpp"

namespace runner_test {
namespace {

TEST_CASE("ema: the runner's own average and the program's exclude each other", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.ema.enabled = true;
  class Runner : public TinyRunner {
   public:
    explicit Runner(const TinyConfig& tiny) : TinyRunner(tiny) { ema = make_tiny_net(tiny); }
  };
  Runner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
        "[runner.averages] expected either ema.enabled or swa.enabled in the config or the runner's own `ema`, got "
        "both; leave `ema` empty, since the runner keeps the average");
}

TEST_CASE("ema and swa: options without enabled, and names that no model has, are errors", "[runner]") {
  TinyConfig config;
  config.ema.decay = 0.9;
  CHECK(error_of<dl::ConfigError>([&] { config.base_validate(); }) ==
        "[config.validate] expected 'ema.enabled' with 'ema.decay', got none");
  config.ema.enabled = false;
  config.base_validate();
  config.swa.models["critic"].lr = 0.1;
  CHECK(error_of<dl::ConfigError>([&] { config.base_validate(); }) ==
        "[config.validate] expected 'swa.critic.enabled' with 'swa.critic.lr', got none");
  config.swa.models["critic"].enabled = true;
  config.base_validate();
  CHECK(error_of<dl::ConfigError>([&] { config.check_model_names({"actor"}); }) ==
        "[runner.check_model_names] expected sections of swa for the models (actor), got 'swa.critic'");
}

TEST_CASE("swa: statistics of a TorchScript model, and a share of a run without a length, are errors", "[runner]") {
  const Folder folder;
  auto config = hosted(folder);
  config.steps = std::nullopt;
  config.sched.type = std::nullopt;
  config.swa.enabled = true;
  HostedRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train_on_batch(pushed(0)); }) ==
        "[optim.average] expected swa.start as a number of steps, where the run has no length, got 0.75");
  torch::jit::Module module("Norm");
  module.register_parameter("weight", torch::zeros({3, 4}).requires_grad_(), false);
  module.register_buffer("running_mean", torch::zeros({3}));
  module.define("def forward(self, input):\n  return torch.linear(input, self.weight) - self.running_mean\n");
  const Folder other;
  TinyConfig tiny(other);
  tiny.epochs = 1;
  tiny.swa.enabled = true;
  TinyRunner scripted(tiny);
  scripted.model = module;
  CHECK(error_of<dl::ConfigError>([&] { scripted.train(); }) ==
        "[runner.averages] expected swa.update_bn false for a TorchScript model with batch normalization, whose "
        "statistics cannot be estimated again, got true");
}

}  // namespace
}  // namespace runner_test
