// Averages of the weights where a run evaluates, tests and exports, and as its last table names them.
#include "averaged_runner.hpp"
#include "fixture.hpp"
#include "printed.hpp"

namespace runner_test {
namespace {

using dl::State;

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

}  // namespace
}  // namespace runner_test
