// optim.freeze and optim.no_decay in runs: one model, several models, TorchScript models, resumed runs.
#include <torch/csrc/jit/api/module.h>

#include "fixture.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

using Names = std::vector<std::string>;

TinyConfig frozen_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.optim.freeze = Names{"^0\\."};
  return config;
}

TEST_CASE("optim.freeze: frozen parameters keep their values, take no gradient and no optimizer state", "[runner]") {
  const Folder folder;
  TinyRunner runner(frozen_config(folder));
  const dl::State before = dl::clone(runner.model.state_dict());
  runner.before_step = [](TinyRunner& self, std::int64_t done) {
    if (done == 1) {
      for (const auto& [name, parameter] : self.model.named_parameters()) {
        CHECK(parameter.requires_grad() == name.starts_with("3."));
        CHECK_FALSE(parameter.grad().defined());  // dropped after the update
      }
    }
  };
  runner.train();
  const dl::State after = runner.model.state_dict();
  CHECK(at::equal(after.at("0.weight").tensor(), before.at("0.weight").tensor()));
  CHECK(at::equal(after.at("0.bias").tensor(), before.at("0.bias").tensor()));
  CHECK_FALSE(at::equal(after.at("3.weight").tensor(), before.at("3.weight").tensor()));
  CHECK(runner.optimizer->param_groups()[0].names == Names{"3.weight", "3.bias"});
  CHECK(runner.optimizer->state_dict().at("state").map().size() == 2);
}

TEST_CASE("optim.freeze: an optimizer of the program keeps no state of frozen parameters", "[runner]") {
  struct OwnOptimizer : TinyRunner {
    explicit OwnOptimizer(const TinyConfig& config) : TinyRunner(config) {
      optimizer = dl::optim::build_optimizer({"adamw"}, model.named_parameters());
    }
  };
  const Folder folder;
  TinyConfig config = frozen_config(folder);
  config.optim.type.reset();
  config.optim.lr.reset();
  OwnOptimizer runner(config);
  const at::Tensor before = runner.model.state_dict().at("0.weight").tensor().clone();
  runner.train();
  CHECK(at::equal(runner.model.state_dict().at("0.weight").tensor(), before));
  CHECK(runner.optimizer->state_dict().at("state").map().size() == 2);
}

TEST_CASE("optim.freeze: of several models, each by the patterns of its section, else by the common ones", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.optim.freeze = Names{"^2\\.bias"};
  config.optim.models["discriminator"].freeze = Names{"^0\\."};
  GanRunner runner(config);
  runner.initialize();
  CHECK(runner.optimizers["generator"]->param_groups()[0].names == Names{"0.weight", "0.bias", "2.weight"});
  CHECK(runner.optimizers["discriminator"]->param_groups()[0].names == Names{"2.weight", "2.bias"});
  const dl::State before = dl::clone(runner.models["discriminator"].state_dict());
  runner.train();
  CHECK(at::equal(runner.models["discriminator"].state_dict().at("0.weight").tensor(), before.at("0.weight").tensor()));
  CHECK_FALSE(
      at::equal(runner.models["discriminator"].state_dict().at("2.weight").tensor(), before.at("2.weight").tensor()));
}

TEST_CASE("optim.freeze: a common pattern may match in one of several models, but must in any", "[runner]") {
  struct Unequal : GanRunner {
    explicit Unequal(const TinyConfig& config) : GanRunner(config) {
      models["discriminator"] = torch::nn::Sequential(torch::nn::Linear(4, 1));
    }
  };
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.optim.freeze = Names{"^2\\."};
  Unequal runner(config);
  runner.initialize();
  CHECK(runner.optimizers["generator"]->param_groups()[0].names == Names{"0.weight", "0.bias"});
  CHECK(runner.optimizers["discriminator"]->param_groups()[0].names == Names{"0.weight", "0.bias"});

  config.optim.freeze = Names{"^3\\."};
  Unequal other(config);
  CHECK(error_of<dl::ConfigError>([&] { other.initialize(); }) ==
        "[optim.freeze] expected a pattern that matches a parameter (0.weight, 0.bias, 0.weight, 0.bias and 2 more), "
        "got '^3\\.'");
}

TEST_CASE("optim.freeze: a named model that is frozen whole is not trained", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.optim.models["discriminator"].freeze = Names{"."};
  GanRunner runner(config);
  runner.initialize();
  CHECK_FALSE(runner.optimizers.contains("discriminator"));

  TinyConfig all(folder);
  all.optim.freeze = Names{"."};
  TinyRunner none(all);
  CHECK(error_of<dl::ConfigError>([&] { none.initialize(); }) ==
        "[runner.build_optimizer] expected parameters to train, got none that optim.freeze leaves");
}

TEST_CASE("optim.freeze: parameters of a TorchScript model", "[runner]") {
  struct Scripted : TinyRunner {
    explicit Scripted(const TinyConfig& config) : TinyRunner(config) {
      torch::jit::Module module("Net");
      module.register_parameter("body", torch::linspace(-1, 1, 16).view({4, 4}).requires_grad_(), false);
      module.register_parameter("head", torch::linspace(-1, 1, 12).view({3, 4}).requires_grad_(), false);
      module.define(
          "def forward(self, x):\n  return torch.linear(torch.tanh(torch.linear(x, self.body)), self.head)\n");
      model = module;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.freeze = Names{"body"};
  Scripted runner(config);
  const dl::State before = dl::clone(runner.model.state_dict());
  runner.train();
  CHECK(at::equal(runner.model.state_dict().at("body").tensor(), before.at("body").tensor()));
  CHECK_FALSE(at::equal(runner.model.state_dict().at("head").tensor(), before.at("head").tensor()));
  CHECK(runner.optimizer->state_dict().at("state").map().size() == 1);
}

TEST_CASE("optim.freeze and optim.no_decay: a resumed run ends as an uninterrupted one, bit for bit", "[runner]") {
  const auto with = [](const Folder& folder) {
    TinyConfig config = frozen_config(folder);
    config.epochs = 3;
    config.optim.no_decay = true;
    config.optim.weight_decay = 0.1;
    return config;
  };
  const Folder folder;
  TinyRunner whole(with(folder));
  whole.train();
  REQUIRE(whole.optimizer->param_groups().size() == 2);
  CHECK(whole.optimizer->param_groups()[1].names == Names{"3.bias"});
  const Folder other;
  {
    TinyRunner stopped(with(other));
    train_until(stopped, 9);
  }
  TinyConfig config = with(other);
  config.auto_resume = true;
  TinyRunner resumed(config);
  resumed.train();
  CHECK(dl::bitwise_equal(resumed.model.state_dict(), whole.model.state_dict()));
  CHECK(dl::bitwise_equal(resumed.optimizer->state_dict(), whole.optimizer->state_dict()));
}

TEST_CASE("optim.freeze: running statistics of a norm in a frozen part still follow the training batches", "[runner]") {
  struct Normed : TinyRunner {
    explicit Normed(const TinyConfig& config) : TinyRunner(config) {
      model = torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 3));
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.freeze = Names{"^[01]\\."};
  Normed runner(config);
  runner.train();
  const dl::State after = runner.model.state_dict();
  CHECK(at::equal(after.at("1.weight").tensor(), torch::ones({8})));
  CHECK_FALSE(at::equal(after.at("1.running_mean").tensor(), torch::zeros({8})));
}

}  // namespace
}  // namespace runner_test
