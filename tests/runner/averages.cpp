// EMA and SWA of the config in a run, against torch.optim.swa_utils (tests/golden/averaging.py).
#include <nlohmann/json.hpp>

#include <torch/csrc/jit/api/module.h>

#include "fixture.hpp"
#include "hosted.hpp"
#include "models.hpp"
#include "printed.hpp"

namespace runner_test {
namespace {

using dl::State;

// ---- the same numbers as torch's recipe -----------------------------------------------------------------------------

const nlohmann::json& golden_run() {
  static const nlohmann::json document =
      nlohmann::json::parse(read_file(fs::path(DANLING_SOURCE_DIR) / "tests/golden/averaging.json"));
  return document["run"];
}

at::Tensor golden_tensor(const nlohmann::json& values, at::IntArrayRef shape) {
  return torch::tensor(values.get<std::vector<double>>()).to(torch::kFloat).view(shape);
}

/// Golden inputs and targets in order, three batches of four.
class RecipeRunner : public dl::TorchRunner {
 public:
  explicit RecipeRunner(const TinyConfig& config) : TorchRunner(config) {
    auto net = torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 1));
    const at::NoGradGuard guard;
    for (const auto& item : net->named_parameters()) {
      item.value().copy_(golden_tensor(golden_run()["initial"][item.key()], item.value().sizes()));
    }
    model = net;
    criterion = torch::nn::MSELoss();
    dl::Batch all;
    all.input = golden_tensor(golden_run()["inputs"], {12, 3});
    all.target = golden_tensor(golden_run()["targets"], {12, 1});
    datasets["train"] = Points{all, true};
    datasets["val"] = Points{all, false};
  }
  ~RecipeRunner() override { close(); }
};

TinyConfig recipe(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 6;
  config.dataloader.batch_size = 4;
  config.dataloader.shuffle = false;
  config.optim.type = "sgd";
  config.optim.lr = 0.05;
  config.sched.type = "step";
  config.sched.interval = "epoch";
  config.sched.step_size = 2;
  config.sched.gamma = 0.5;
  return config;
}

void switch_on_ema(TinyConfig& config) {
  config.ema.enabled = true;
  config.ema.decay = 0.9;
}

void switch_on_swa(TinyConfig& config) {
  config.swa.enabled = true;
  config.swa.start = 3;
  config.swa.lr = 0.03;
  config.swa.anneal = 2;
}

void check_golden(const State& weights, const nlohmann::json& want) {
  REQUIRE(weights.map().size() == want.size());
  for (const auto& entry : weights.map()) {
    CAPTURE(entry.key.string());
    const auto& tensor = entry.value.tensor();
    CHECK(
        torch::allclose(tensor.to(torch::kFloat), golden_tensor(want[entry.key.string()], tensor.sizes()), 1e-4, 1e-5));
  }
}

TEST_CASE("ema and swa: a run equals torch's recipe: losses, rates, averages and statistics", "[runner]") {
  const Folder folder;
  auto config = recipe(folder);
  const bool with_swa = GENERATE(false, true);
  switch_on_ema(config);
  if (with_swa) {
    switch_on_swa(config);
  }
  RecipeRunner runner(config);
  runner.train();
  const auto& rows = runner.results().rows();
  REQUIRE(rows.size() == 6);
  for (std::size_t epoch = 0; epoch < (with_swa ? 6U : 4U); ++epoch) {  // SWALR changes the fifth
    CAPTURE(epoch);
    const auto& want = golden_run()["rows"][epoch];
    const bool equal = with_swa && epoch >= 3;  // from its start on, SWA is evaluated
    CHECK(*rows[epoch].result.number("val.loss") == Approx(want[equal ? "swa" : "ema"].get<double>()).epsilon(1e-4));
    if (with_swa) {  // torch's learning rates are those of SWALR
      CHECK(*rows[epoch].result.number("train.lr") == Approx(want["lr"].get<double>()).epsilon(1e-9));
    }
  }
  State state = runner.state_dict();
  if (with_swa) {
    check_golden(state.at("model"), golden_run()["model"]);
    check_golden(state.at("ema"), golden_run()["ema"]);
    check_golden(state.at("swa"), golden_run()["swa"]);
  }
  CHECK(runner.evaluated_average() == (with_swa ? "swa" : "ema"));
}

// ---- evaluation, best, test and export ------------------------------------------------------------------------------

State weights_of(const dl::ModelHandle& model) { return dl::clone(model.state_dict()); }

void check_same_weights(const State& a, const State& b) {  // in any order
  CHECK(a.map().size() == b.map().size());
  for (const auto& entry : a.map()) {
    CAPTURE(entry.key.string());
    CHECK(dl::first_difference(entry.value, b.at(entry.key)) == "");
  }
}

TEST_CASE("ema: evaluation and inference use the average, and training never sees it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.ema.enabled = true;
  const auto reference = [&] {
    const Folder other;
    auto without = config;
    without.workspace_root = other.path().string();
    without.ema = {};
    return outcome_of(trained(without)).checkpoint;
  }();
  TinyRunner runner(config);
  State seen;
  runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) { seen = weights_of(self.model); };
  runner.train();
  State state = runner.state_dict();
  CHECK(dl::first_difference(state.at("ema"), seen) == "");
  CHECK(dl::first_difference(state.at("model"), seen) != "");
  CHECK(dl::first_difference(state.at("model"), reference.at("model")) == "");
  CHECK(dl::first_difference(state.at("optimizer"), reference.at("optimizer")) == "");
  CHECK(dl::first_difference(weights_of(runner.model), reference.at("model")) == "");
  const at::Tensor predictions = runner.infer("val");
  auto averaged = make_tiny_net(config);
  dl::ModelHandle(averaged).load_state_dict(state.at("ema"));
  averaged->eval();
  CHECK(torch::allclose(predictions, averaged->forward(make_points(20, 1000).input).detach(), 1e-5, 1e-6));
}

TEST_CASE("ema: a checkpoint saved inside an evaluation has the trained weights and the average apart", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.ema.enabled = true;
  TinyRunner runner(config);
  State inside, applied;
  runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) {
    inside = dl::clone(self.state_dict());
    applied = weights_of(self.model);
  };
  runner.train();
  State after = runner.state_dict();
  CHECK(dl::first_difference(inside.at("model"), after.at("model")) == "");
  CHECK(dl::first_difference(inside.at("ema"), after.at("ema")) == "");
  CHECK(dl::first_difference(applied, after.at("ema")) == "");
}

TEST_CASE("ema: an evaluation that throws leaves the trained weights in the model", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.ema.enabled = true;
  TinyRunner runner(config);
  runner.train();
  const State trained_weights = weights_of(runner.model);
  runner.before_evaluation_step = [](TinyRunner&, std::int64_t) { throw std::runtime_error("a bad batch"); };
  CHECK_THROWS(runner.evaluate());
  CHECK(dl::first_difference(weights_of(runner.model), trained_weights) == "");
}

TEST_CASE("ema: model.pth has both weights, the results name the average, and pretrained prefers it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.ema.enabled = true;
  config.test_splits = {"held"};
  const bool best = GENERATE(false, true);
  config.test_with = config.checkpoint.export_with = best ? "best" : "last";
  class Runner : public TinyRunner {
   public:
    explicit Runner(const TinyConfig& tiny) : TinyRunner(tiny) {
      datasets["held"] = Points{make_points(20, 2000), false};
    }

   protected:
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      evaluation_loss = split() == "val" ? losses_by_epoch({3, 1, 2}) : nullptr;
      return TinyRunner::evaluate_step(batch);
    }
  };
  Runner runner(config);
  runner.train();
  const State before = dl::clone(runner.state_dict());
  const double loss = *runner.test().number("held.loss");
  State after = runner.state_dict();
  for (const char* part : {"model", "ema", "averages", "optimizer"}) {
    CHECK(dl::first_difference(before.at(part), after.at(part)) == "");
  }
  CHECK(runner.tested_weights() == (best ? "epoch 2 (best, ema)" : "epoch 3 (last, ema)"));
  CHECK(runner.exported_weights() == (best ? "epoch 2 (best, ema)" : "epoch 3 (last, ema)"));
  CHECK(runner.close());
  const auto files = runner.workspace().checkpoint_dir();
  const State source = dl::load_file(files / (best ? "best.pth" : "latest.pth"));
  const State exported = dl::load_file(files / "model.pth");
  CHECK(exported.map().size() == 2);
  CHECK(dl::first_difference(exported.at("model"), source.at("model")) == "");
  CHECK(dl::first_difference(exported.at("ema"), source.at("ema")) == "");
  check_same_weights(dl::load_safetensors(files / "model-ema.safetensors"), source.at("ema"));
  for (const char* file : {"model.pth", best ? "best.pth" : "latest.pth"}) {
    const Folder other;
    auto fresh = config;
    fresh.workspace_root = other.path().string();
    fresh.pretrained = (files / file).string();
    fresh.ema = {};
    Runner again(fresh);
    CHECK(*again.test().number("held.loss") == loss);
    CHECK(dl::first_difference(weights_of(again.model), source.at("ema")) == "");
  }
}

TEST_CASE("swa: the exported average is that of the evaluation, under ema", "[runner]") {
  const Folder folder;
  auto config = recipe(folder);
  switch_on_ema(config);
  switch_on_swa(config);
  RecipeRunner runner(config);
  runner.train();
  State state = dl::clone(runner.state_dict());
  CHECK(runner.exported_weights() == "epoch 6 (last, best, swa)");
  CHECK(runner.close());
  const State exported = dl::load_file(runner.workspace().checkpoint_dir() / "model.pth");
  CHECK(dl::first_difference(exported.at("ema"), state.at("swa")) == "");
}

TEST_CASE("run: the rows of the last table name the average that measured them", "[runner]") {
  const Folder folder;
  const std::vector<std::string> given = {"program",
                                          "--workspace_root",
                                          folder.path().string(),
                                          "--console",
                                          "true",
                                          "--epochs",
                                          "4",
                                          "--ema.enabled",
                                          "true",
                                          "--ema.start",
                                          "14",
                                          "--score_mode",
                                          "max"};
  auto words = given;
  std::vector<char*> arguments;
  for (auto& word : words) {
    arguments.push_back(word.data());
  }
  class Runner : public TinyRunner {
   public:
    explicit Runner(const TinyConfig& config) : TinyRunner(config) { evaluation_loss = losses_by_epoch({3, 1, 2}); }
  };
  // The best of three epochs, by the highest loss, is the first, before the average begins with the fifteenth update.
  const auto text = printed_by([&] {
    CHECK(dl::run<Runner, TinyConfig>(static_cast<int>(arguments.size()), arguments.data()) == dl::exit_success);
  });
  CAPTURE(text);
  CHECK_THAT(text, ContainsSubstring("epoch 4 (last)"));
  CHECK_THAT(text, ContainsSubstring("epoch 4 (last, ema)"));
  CHECK_THAT(text, ContainsSubstring("epoch 1 (best)"));
  CHECK_THAT(text, ContainsSubstring("model.pth: epoch 4 (last, ema)\n"));
}

// ---- updates --------------------------------------------------------------------------------------------------------

TEST_CASE("ema: an accumulation window is one update", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.accum_steps = 3;
  config.ema.enabled = true;
  TinyRunner runner(config);
  runner.train();
  State state = runner.state_dict();
  CHECK(state.at("state").at("train").at("global_step").integer() == 6);
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 6);
}

TEST_CASE("ema: a skipped update leaves the average", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.skip_nonfinite_grad = true;
  config.ema.enabled = true;
  class Runner : public TinyRunner {
   public:
    using TinyRunner::TinyRunner;

   protected:
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (micro_batches == 2) {
        batch.input.fill_(std::numeric_limits<float>::quiet_NaN());
      }
      return TinyRunner::train_step(batch);
    }
  };
  Runner runner(config);
  runner.train();
  State state = runner.state_dict();
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 6);
  CHECK(state.at("ema").at("0.weight").tensor().isfinite().all().item<bool>());
}

TEST_CASE("ema: of several models each has its own, by sections of the config", "[runner]") {
  const Folder folder;
  auto config = gan_config(folder);
  config.ema.models["generator"].enabled = true;
  config.ema.models["generator"].decay = 0.5;
  config.ema.models["generator"].warmup = 0;
  GanRunner runner(config);
  std::map<std::string, at::Tensor> expected;
  const auto train = [&] {
    runner.train();
    return runner.state_dict();
  };
  State state = train();
  const State& generator = state.at("models").at("generator");
  CHECK(dl::first_difference(generator.at("ema"), generator.at("model")) != "");
  CHECK(generator.at("averages").at("ema").at("n_averaged").integer() == 21);
  CHECK(state.at("models").at("discriminator").find("ema") == nullptr);
  CHECK(state.at("ema").is_null());
  CHECK(runner.close());
  const auto files = runner.workspace().checkpoint_dir();
  check_same_weights(dl::load_safetensors(files / "model-generator-ema.safetensors"), generator.at("ema"));
  CHECK_FALSE(fs::exists(files / "model-discriminator-ema.safetensors"));
  const Folder other;
  auto fresh = gan_config(other);
  fresh.pretrained = (files / "model.pth").string();
  GanRunner again(fresh);
  again.initialize();
  CHECK(dl::first_difference(weights_of(again.models["generator"]), generator.at("ema")) == "");
}

TEST_CASE("ema: in a loop of the program, evaluate_on_batch uses the average", "[runner]") {
  const Folder folder;
  auto config = hosted(folder);
  config.ema.enabled = true;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  HostedRunner runner(config);
  bool done = false;
  State evaluated;
  for (std::int64_t i = 0; !done; ++i) {
    const auto report = runner.train_on_batch(pushed(i));
    done = report.done;
    if (i == 9) {
      const State before = weights_of(runner.model);
      runner.evaluate_on_batch(pushed(0));
      evaluated = weights_of(runner.model);
      State state = runner.state_dict();
      CHECK(dl::first_difference(state.at("ema"), evaluated) == "");
      CHECK(dl::first_difference(state.at("model"), before) == "");
      runner.finish_evaluation();
      CHECK(dl::first_difference(weights_of(runner.model), before) == "");
    }
  }
  runner.finish_training();
  State state = runner.state_dict();
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 12);
  CHECK(state.at("averages").at("swa").at("n_averaged").integer() == 6);
  CHECK(runner.evaluated_average() == "swa");
}

TEST_CASE("ema: a TorchScript model is averaged", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.ema.enabled = true;
  config.ema.decay = 0.5;
  torch::jit::Module module("Layer");
  module.register_parameter("weight", torch::zeros({3, 4}).requires_grad_(), false);
  module.define("def forward(self, input):\n  return torch.linear(input, self.weight)\n");
  class Runner : public TinyRunner {
   public:
    Runner(const TinyConfig& tiny, const torch::jit::Module& script) : TinyRunner(tiny) { model = script; }
  };
  Runner runner(config, module);
  State seen;
  runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t) { seen = weights_of(self.model); };
  runner.train();
  State state = runner.state_dict();
  CHECK(dl::first_difference(state.at("ema"), seen) == "");
  CHECK(dl::first_difference(state.at("model"), seen) != "");
}

// ---- resume ---------------------------------------------------------------------------------------------------------

TinyConfig averaged(bool by_steps) {
  TinyConfig config;
  config.sched.type = "cosine";
  config.ema.enabled = true;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  config.swa.lr = 0.01;
  config.swa.anneal = 3;
  if (by_steps) {
    config.steps = 24;
    config.evaluate_interval = 6;
    config.swa.interval = 2;
    config.log_interval = 2;
  } else {
    config.epochs = 4;
  }
  return config;
}

/// With batch normalization and dropout.
class NormRunner : public TinyRunner {
 public:
  explicit NormRunner(const TinyConfig& config) : TinyRunner(config) {
    model = torch::nn::Sequential(torch::nn::Linear(4, config.hidden), torch::nn::BatchNorm1d(config.hidden),
                                  torch::nn::Dropout(config.dropout), torch::nn::Linear(config.hidden, 3));
  }
};

template <class Runner>
Outcome whole_run(TinyConfig config) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  Runner runner(config);
  runner.train();
  CHECK(runner.close());
  return outcome_of(runner.workspace().dir());
}

TEST_CASE("ema and swa: a run that is stopped and resumed equals one that is not, bit for bit", "[runner]") {
  const bool by_steps = GENERATE(false, true);
  const auto config = averaged(by_steps);
  check_same(run_stopped<NormRunner>(config, {5, 10, 4}), whole_run<NormRunner>(config));
}

TEST_CASE("swa: a run that stops inside the evaluation of the average resumes bit for bit", "[runner]") {
  auto config = averaged(/*by_steps=*/false);
  const auto whole = whole_run<NormRunner>(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  {
    NormRunner runner(config);
    // Three batches of val in each of two epochs; then the seven of the statistics, and one of val.
    train_until_evaluation(runner, GENERATE(9, 14));
  }
  NormRunner runner(config);
  runner.train();
  CHECK(runner.close());
  check_same(outcome_of(runner.workspace().dir()), whole);
}

TEST_CASE("ema and swa: a roll-back in the same process trains on as before, bit for bit", "[runner]") {
  auto config = averaged(/*by_steps=*/true);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.checkpoint.interval = 6;
  NormRunner runner(config);
  runner.train();
  const State first = dl::clone(runner.state_dict());
  runner.load_checkpoint(runner.workspace().checkpoint_dir() / "ckpt-s000000000006.pth");
  CHECK(runner.state_dict().at("averages").at("swa").at("n_averaged").integer() == 0);
  runner.train();
  State again = runner.state_dict();
  for (const char* part : {"model", "ema", "swa", "averages", "optimizer", "scheduler"}) {
    CAPTURE(part);
    CHECK(dl::first_difference(again.at(part), first.at(part)) == "");
  }
}

TEST_CASE("ema: a checkpoint without an average begins one with the resumed weights, and says so", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto dir = trained(config);
  config.resume = (dir / "checkpoints" / "latest.pth").string();
  config.checkpoint.exclude_from_loading = {"runner"};
  config.epochs = 2;
  config.ema.enabled = true;
  TinyRunner runner(config);
  std::vector<std::string> lines;
  runner.logger().set_sink([&](dl::LogLevel, std::string_view text) { lines.emplace_back(text); });
  runner.train();
  CHECK(std::count(lines.begin(), lines.end(),
                   "ema: the checkpoint has no average of the weights; a new one begins with the loaded weights") == 1);
  State state = runner.state_dict();
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 7);
  CHECK(state.at("averages").at("ema").at("updates").integer() == 14);
}

TEST_CASE("ema: an average that the program kept in `ema` is taken over", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  class Kept : public TinyRunner {
   public:
    explicit Kept(const TinyConfig& tiny) : TinyRunner(tiny) { ema = make_tiny_net(tiny); }
  };
  Kept kept(config);
  kept.train();
  const State average = dl::clone(kept.state_dict().at("ema"));
  CHECK(kept.exported_weights() == "epoch 1 (last, best, ema)");
  CHECK(kept.close());
  config.resume = (kept.workspace().checkpoint_dir() / "latest.pth").string();
  config.checkpoint.exclude_from_loading = {"runner"};
  config.ema.enabled = true;
  TinyRunner runner(config);
  runner.initialize();
  State state = runner.state_dict();
  CHECK(dl::first_difference(state.at("ema"), average) == "");
  CHECK(state.at("averages").at("ema").at("n_averaged").integer() == 7);
}

TEST_CASE("ema: the next start of a finished run evaluates with the average of model.pth", "[runner]") {
  const Folder folder;
  auto config = recipe(folder);
  switch_on_swa(config);
  config.checkpoint.last_save_model_only = true;
  const double loss = [&] {
    RecipeRunner runner(config);
    runner.train();
    runner.write_summary("finished");
    return *runner.results().rows().back().result.number("val.loss");
  }();
  config.auto_resume = true;
  RecipeRunner runner(config);
  runner.train();
  CHECK(runner.is_finished());
  CHECK(*runner.evaluate().number("val.loss") == Approx(loss).epsilon(1e-6));
}

TEST_CASE("swa: a run that is extended begins its average again at the new start", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  trained(config);
  config.epochs = 12;
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  State state = runner.state_dict();
  CHECK(state.at("averages").at("swa").at("n_averaged").integer() == 6);
}

// ---- errors ---------------------------------------------------------------------------------------------------------

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
