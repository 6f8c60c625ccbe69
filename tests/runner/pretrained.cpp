// pretrained: weights of a checkpoint in another run, and runners built from checkpoints.
#include <torch/script.h>

#include <danling/config/tree.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

struct PretrainedRun {
  PretrainedRun() : config(folder) {
    config.epochs = 2;
    TinyRunner runner(config);
    runner.train();
    checkpoints = runner.workspace().dir() / "checkpoints";
    weights = dl::clone(runner.model.state_dict());
  }
  Folder folder;
  TinyConfig config;
  fs::path checkpoints;
  dl::State weights;
};

struct OtherHead : TinyRunner {
  explicit OtherHead(const TinyConfig& config) : TinyRunner(config) {
    torch::nn::Sequential net = make_tiny_net(config);
    net->push_back("extra", torch::nn::Linear(3, 2));
    model = net;
  }
};

TEST_CASE("load_pretrained: another architecture is an error with file and names, and the model does not change",
          "[runner]") {
  PretrainedRun run;
  const Folder other;
  TinyConfig config(other);
  config.hidden = 9;
  OtherHead runner(config);
  const dl::State before = dl::clone(runner.model.state_dict());
  const auto model = run.checkpoints / "model.pth";
  CHECK(error_of<dl::CheckpointError>([&] { runner.load_pretrained(model); }) ==
        "[checkpoint.load_pretrained] expected weights of the same architecture in file '" + model.string() +
            "' under 'model', got 2 missing (extra.weight, extra.bias); 3 of another shape (0.weight is Float [9, 4] "
            "here and Float [8, 4] there, 0.bias is Float [9] here and Float [8] there, 3.weight is Float [3, 9] here "
            "and Float [3, 8] there); rename them, choose others by `key`, or set strict to false to leave those as "
            "they are");
  CHECK(dl::bitwise_equal(before, runner.model.state_dict()));

  const dl::WeightMatch match = runner.load_pretrained(model, {.strict = false});
  CHECK(match.loaded == std::vector<std::string>{"3.bias"});
  CHECK(match.missing == std::vector<std::string>{"extra.weight", "extra.bias"});
  CHECK(match.shape_mismatches.size() == 3);
  CHECK(at::equal(runner.model.state_dict().at("3.bias").tensor(), run.weights.at("3.bias").tensor()));
  CHECK(at::equal(runner.model.state_dict().at("3.weight").tensor(), before.at("3.weight").tensor()));
}

TEST_CASE(
    "pretrained_strict: with false the matching weights are loaded, and the log has a line for each kind of others",
    "[runner]") {
  PretrainedRun run;
  const Folder other;
  TinyConfig config(other);
  config.epochs = 1;
  config.pretrained = (run.checkpoints / "latest.pth").string();
  {
    OtherHead runner(config);
    CHECK_THROWS_AS(runner.initialize(), dl::CheckpointError);
  }
  config.pretrained_strict = false;
  OtherHead runner(config);
  runner.initialize();
  CHECK(at::equal(runner.model.state_dict().at("0.weight").tensor(), run.weights.at("0.weight").tensor()));
  CHECK(runner.state().train.epoch == 0);
  runner.save_checkpoint("mine", false, false, true);
  runner.close();
  const std::string log = logs_of(runner.workspace().dir());
  CHECK_THAT(
      log, ContainsSubstring("loaded the weights of " + *config.pretrained + ", those under 'model': 4 of 6 entries"));
  CHECK_THAT(log, ContainsSubstring("runner.load_pretrained: 2 missing (extra.weight, extra.bias): these keep their "
                                    "values"));
  // `pretrained` is not saved with the config.
  const dl::State saved = dl::load_file(runner.workspace().dir() / "checkpoints" / "mine.pth");
  for (const auto* key : {"pretrained", "pretrained_strict"}) {
    CHECK(saved.at("runner").find(key) == nullptr);
  }
}

TEST_CASE("load_pretrained: a TorchScript model loads parameters and buffers, below the prefix of a wrapper",
          "[runner]") {
  torch::jit::Module module("Scaled");
  module.register_parameter("weight", torch::zeros({3, 4}), /*is_buffer=*/false);
  module.register_buffer("scale", torch::zeros({1}));
  module.define("def forward(self, x: Tensor) -> Tensor:\n  return torch.linear(x, self.weight) * self.scale\n");
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  runner.model = module;
  dl::State file;
  file["state_dict"]["module.weight"] = torch::full({3, 4}, 2.0, torch::kHalf);
  file["state_dict"]["module.scale"] = torch::full({1}, 0.5);
  const dl::WeightMatch match = runner.load_pretrained(file);
  CHECK(match.key == "state_dict");
  CHECK(match.prefix == "module.");
  CHECK(at::equal(runner.model(torch::ones({1, 4})), torch::full({1, 3}, 4.0)));
}

TEST_CASE("from_checkpoint: builds the runner of a checkpoint, which continues bit for bit", "[runner]") {
  PretrainedRun run;
  const auto first = run.checkpoints / "ckpt-e000001.pth";
  const auto config = dl::read_config<TinyConfig>(first);
  CHECK(dl::canonical_yaml(config) == dl::canonical_yaml(run.config));
  CHECK(config.workspace_root == run.config.workspace_root);
  const dl::State state = dl::load_file(first);
  const auto check = [&](TinyRunner& runner) {
    CHECK(runner.state().train.epoch == 1);
    CHECK(dl::bitwise_equal(runner.model.state_dict(), state.at("model")));
    runner.train();
    CHECK(runner.state().train.epoch == 2);
    CHECK(dl::first_difference(runner.model.state_dict(), run.weights) == "");
  };
  SECTION("by its path") { check(*dl::from_checkpoint<TinyRunner, TinyConfig>(first)); }
  SECTION("in memory") { check(*dl::from_checkpoint<TinyRunner, TinyConfig>(state)); }
}

TEST_CASE("from_checkpoint: a file without a config is an error with its keys", "[runner]") {
  PretrainedRun run;
  const auto model = run.checkpoints / "model.pth";
  CHECK(error_of<dl::CheckpointError>([&] { dl::from_checkpoint<TinyRunner, TinyConfig>(model); }) ==
        "[runner.read_config] expected the config of a run under 'runner' in file '" + model.string() +
            "', got the keys [model]; use from_pretrained to load only weights");
}

TEST_CASE("from_pretrained: builds a runner with another config and the weights of a checkpoint", "[runner]") {
  PretrainedRun run;
  const Folder other;
  TinyConfig config(other);
  config.dropout = 0;
  config.resume = "nowhere.pth";
  config.auto_resume = true;
  const auto runner = dl::from_pretrained<TinyRunner>(config, run.checkpoints / "model.safetensors");
  CHECK(dl::bitwise_equal(runner->model.state_dict(), run.weights));
  CHECK(runner->state().train.epoch == 0);
  CHECK(runner->config<TinyConfig>().dropout == 0);
  CHECK_FALSE(runner->config().resume.has_value());
}

}  // namespace
}  // namespace runner_test
