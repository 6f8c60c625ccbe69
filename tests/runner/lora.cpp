// LoRA adapters in runs: training, resuming, exports, pretrained weights, several models.
#include <danling/nn/lora.hpp>

#include <torch/csrc/jit/api/module.h>

#include "fixture.hpp"
#include "models.hpp"

namespace runner_test {
namespace {

using Names = std::vector<std::string>;

TinyConfig lora_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.lora.target_modules = Names{"^0$"};
  config.lora.r = 2;
  config.lora.lora_alpha = 4;
  return config;
}

Names names_of(const dl::State& state) {
  Names out;
  for (const auto& entry : state.map()) out.push_back(entry.key.string());
  return out;
}

at::Tensor effective(const dl::State& weights) {
  return at::addmm(weights.at("0.weight").tensor(), weights.at("0.lora_B.weight").tensor(),
                   weights.at("0.lora_A.weight").tensor(), 1.0, 2.0);
}

TEST_CASE("lora: the adapters train, the base keeps its values and has no optimizer state", "[runner]") {
  const Folder folder;
  TinyRunner runner(lora_config(folder));
  const dl::State before = dl::clone(runner.model.state_dict());
  runner.train();
  const dl::State after = runner.model.state_dict();
  CHECK(names_of(after) == Names{"0.weight", "0.bias", "3.weight", "3.bias", "0.lora_A.weight", "0.lora_B.weight"});
  for (const auto& [name, value] : before.map()) {
    CHECK(at::equal(after.at(name.string()).tensor(), value.tensor()));
  }
  CHECK(after.at("0.lora_B.weight").tensor().abs().sum().item<double>() > 0);
  CHECK(runner.optimizer->param_groups()[0].names == Names{"0.lora_A.weight", "0.lora_B.weight"});
  CHECK(runner.optimizer->state_dict().at("state").map().size() == 2);
  CHECK(runner.results().latest() != nullptr);
}

TEST_CASE("lora: each forward pass of training and evaluation uses the present adapters", "[runner]") {
  struct Checked : TinyRunner {
    using TinyRunner::TinyRunner;
    void check_weight() {
      const auto net = model.as<torch::nn::Sequential>();
      CHECK(at::equal(net->ptr<torch::nn::LinearImpl>(0)->weight, effective(model.state_dict())));
      ++checks;
    }
    dl::StepOutput train_step(dl::Batch& batch) override {
      check_weight();
      return TinyRunner::train_step(batch);
    }
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      check_weight();
      return TinyRunner::evaluate_step(batch);
    }
    int checks = 0;
  };
  const Folder folder;
  TinyConfig config = lora_config(folder);
  config.accum_steps = 2;  // the weights serve both backward passes
  Checked runner(config);
  runner.train();
  CHECK(runner.checks == 3 * (7 + 3));
  runner.check_weight();  // also for the program, after the last update
}

TEST_CASE("lora: accumulated gradients equal those of one batch of all records", "[runner]") {
  const auto trained_with = [](std::int64_t batch, std::int64_t windows) {
    const Folder folder;
    TinyConfig config = lora_config(folder);
    config.dropout = 0;
    config.records = 48;
    config.epochs = 1;
    config.optim.type = "sgd";
    config.dataloader.batch_size = batch;
    config.dataloader.shuffle = false;
    config.accum_steps = windows;
    TinyRunner runner(config);
    runner.train();
    return dl::clone(runner.model.state_dict());
  };
  const dl::State whole = trained_with(48, 1);
  const dl::State parts = trained_with(8, 6);
  CHECK(parts.at("0.lora_B.weight").tensor().allclose(whole.at("0.lora_B.weight").tensor(), 1e-4, 1e-7));
  CHECK(whole.at("0.lora_B.weight").tensor().abs().sum().item<double>() > 0);
}

TEST_CASE("lora: a resumed run ends as an uninterrupted one, bit for bit, in each precision", "[runner]") {
  const std::string precision = GENERATE("fp32", "bf16", "fp16");
  CAPTURE(precision);
  const auto with = [&](const Folder& folder) {
    TinyConfig config = lora_config(folder);
    config.precision = precision;
    config.accum_steps = 2;
    return config;
  };
  const Folder folder;
  TinyRunner whole(with(folder));
  whole.train();
  const Folder other;
  {
    TinyRunner stopped(with(other));
    train_until(stopped, 10);
  }
  TinyConfig config = with(other);
  config.auto_resume = true;
  TinyRunner resumed(config);
  resumed.train();
  CHECK(dl::bitwise_equal(resumed.model.state_dict(), whole.model.state_dict()));
  CHECK(dl::bitwise_equal(resumed.optimizer->state_dict(), whole.optimizer->state_dict()));
  CHECK(whole.model.state_dict().at("0.lora_B.weight").tensor().abs().sum().item<double>() > 0);
}

TEST_CASE("lora: model.pth has merged weights under the names of the model, and computes the same", "[runner]") {
  const Folder folder;
  TinyRunner runner(lora_config(folder));
  runner.train();
  const auto input = make_points(6, 500).input;
  runner.model.train(false);
  const at::Tensor expected = runner.model(input);
  const fs::path checkpoints = runner.workspace().dir() / "checkpoints";
  const dl::State merged = effective(runner.model.state_dict());
  runner.close();

  const dl::State exported = dl::load_weights(checkpoints / "model.pth").at("model");
  CHECK(names_of(exported) == Names{"0.weight", "0.bias", "3.weight", "3.bias"});
  CHECK(at::equal(exported.at("0.weight").tensor(), merged.tensor()));
  CHECK(dl::load_weights(checkpoints / "model.safetensors").map().size() == 4);
  TinyConfig plain;
  dl::ModelHandle net = make_tiny_net(plain);
  dl::load_pretrained(net.state_dict(), checkpoints / "model.pth");
  net.train(false);
  CHECK(at::equal(net(input), expected));

  // The adapters alone, on the base that the run began with.
  dl::ModelHandle other = make_tiny_net(plain);
  dl::State base = dl::load_weights(checkpoints / "latest.pth").at("model");
  other.load_state_dict(dl::State(dl::State::Map{{"0.weight", base.at("0.weight")},
                                                 {"0.bias", base.at("0.bias")},
                                                 {"3.weight", base.at("3.weight")},
                                                 {"3.bias", base.at("3.bias")}}));
  other.add_lora(lora_config(folder).lora);
  other.lora()->load(checkpoints / "adapter");
  other.train(false);
  CHECK(at::equal(other(input), expected));
}

TEST_CASE("lora: pretrained weights without adapters become the base; those of a run with adapters load whole",
          "[runner]") {
  const Folder first;
  TinyConfig plain(first);
  plain.epochs = 1;
  const auto run = trained(plain);
  const dl::State given = dl::load_weights(run / "checkpoints/model.pth").at("model");
  const Folder folder;
  TinyConfig config = lora_config(folder);
  config.pretrained = (run / "checkpoints/model.pth").string();
  TinyRunner runner(config);
  runner.initialize();
  CHECK(at::equal(runner.model.state_dict().at("0.weight").tensor(), given.at("0.weight").tensor()));
  CHECK(runner.model.state_dict().at("0.lora_B.weight").tensor().abs().sum().item<double>() == 0);
  runner.train();
  const dl::State after = dl::clone(runner.model.state_dict());
  const auto latest = runner.workspace().dir() / "checkpoints/latest.pth";
  runner.close();

  const Folder third;
  TinyConfig again = lora_config(third);
  again.pretrained = latest.string();
  TinyRunner other(again);
  other.initialize();
  CHECK(dl::bitwise_equal(other.model.state_dict(), after));
}

TEST_CASE("lora: test_with best and export_with best use the adapters of the best score", "[runner]") {
  const Folder folder;
  TinyConfig config = lora_config(folder);
  config.checkpoint.export_with = "best";
  config.test_with = "best";
  config.test_splits = Names{"test"};
  struct Tested : TinyRunner {
    explicit Tested(const TinyConfig& own) : TinyRunner(own) {
      datasets["test"] = Points{make_points(20, 2000), false};
    }
  };
  Tested runner(config);
  runner.evaluation_loss = losses_by_epoch({3.0, 1.0, 2.0});
  runner.train();
  const dl::State last = dl::clone(runner.model.state_dict());
  runner.test();
  CHECK(dl::bitwise_equal(runner.model.state_dict(), last));
  const fs::path checkpoints = runner.workspace().dir() / "checkpoints";
  runner.close();
  const dl::State best = dl::load_weights(checkpoints / "best.pth").at("model");
  REQUIRE_FALSE(dl::bitwise_equal(best, last));
  CHECK(at::equal(dl::load_weights(checkpoints / "model.pth").at("model").at("0.weight").tensor(), effective(best)));
  const dl::State adapter = dl::load_weights(checkpoints / "adapter/adapter_model.safetensors");
  CHECK(at::equal(adapter.at("base_model.model.0.lora_B.weight").tensor(), best.at("0.lora_B.weight").tensor()));
}

TEST_CASE("lora: of several models, those with a section; several backward passes and updates in a batch", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.lora.r = 2;
  config.lora.target_modules = Names{"^2$"};
  config.lora.models["discriminator"].lora_alpha = 2;
  GanRunner runner(config);
  runner.inner = 2;
  runner.train();
  CHECK(runner.optimizers["discriminator"]->param_groups()[0].names == Names{"2.lora_A.weight", "2.lora_B.weight"});
  CHECK(runner.models["generator"].lora() == nullptr);
  const fs::path checkpoints = runner.workspace().dir() / "checkpoints";
  CHECK(fs::exists(checkpoints / "adapter-discriminator/adapter_config.json"));
  const dl::State exported = dl::load_weights(checkpoints / "model.pth");
  CHECK(exported.at("models").at("discriminator").at("model").map().size() == 4);

  config.lora.models["critic"].r = 3;
  GanRunner other(config);
  CHECK(error_of<dl::ConfigError>([&] { other.initialize(); }) ==
        "[runner.materialize_model] expected sections of lora for the models (discriminator, generator), got "
        "'lora.critic'");
  config.lora.models.clear();
  GanRunner none(config);
  CHECK(error_of<dl::ConfigError>([&] { none.initialize(); }) ==
        "[runner.materialize_model] expected a section of lora for one of several models, such as lora.<model>.r, got "
        "none");
}

TEST_CASE("lora: what it cannot adapt is refused", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.lora.r = 4;
  TinyRunner unset(config);
  CHECK(error_of<dl::ConfigError>([&] { unset.initialize(); }) == "[lora] expected target_modules, got none");

  struct Scripted : TinyRunner {
    explicit Scripted(const TinyConfig& own) : TinyRunner(own) {
      torch::jit::Module module("Net");
      module.register_parameter("w", torch::zeros({3, 4}).requires_grad_(), false);
      module.define("def forward(self, x):\n  return torch.linear(x, self.w)\n");
      model = module;
    }
  };
  Scripted script(lora_config(folder));
  CHECK(error_of<dl::ConfigError>([&] { script.initialize(); }) ==
        "[runner.add_lora] expected a torch::nn module for lora, got a TorchScript model");

  struct Averaged : TinyRunner {
    explicit Averaged(const TinyConfig& own) : TinyRunner(own) { ema = make_tiny_net(own); }
  };
  Averaged averaged(lora_config(folder));
  CHECK(error_of<dl::ConfigError>([&] { averaged.initialize(); }) ==
        "[runner.materialize_model] expected ema.enabled for the average of a model with adapters, got an `ema` of the "
        "program");
}

}  // namespace
}  // namespace runner_test
