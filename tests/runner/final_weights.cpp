// The weights that a run tests and exports, and the rows of the last table that name them.
#include <nlohmann/json.hpp>

#include "fixture.hpp"
#include "printed.hpp"

namespace runner_test {

/// The second of three epochs is the best; `held` is tested at the end.
class TestedRunner : public TinyRunner {
 public:
  explicit TestedRunner(const TinyConfig& config) : TinyRunner(config) {
    datasets["held"] = Points{make_points(20, 2000), false};
  }

 protected:
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    evaluation_loss = split() == "val" ? losses_by_epoch({3, 1, 2}) : nullptr;
    return TinyRunner::evaluate_step(batch);
  }
};

TinyConfig tested_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.test_splits = {"held"};
  return config;
}

/// The test loss with the weights of a checkpoint.
double loss_of(const fs::path& checkpoint) {
  const Folder folder;
  auto config = tested_config(folder);
  config.pretrained = checkpoint.string();
  TestedRunner runner(config);
  return *runner.test().number("held.loss");
}

nlohmann::json details_of(const fs::path& dir) {
  return nlohmann::json::parse(read_file(dir / "summary.json"))["details"];
}

TEST_CASE("test_with: tests with the last weights or with those of the best score", "[runner]") {
  const Folder folder;
  auto config = tested_config(folder);
  const bool best = GENERATE(false, true);
  config.test_with = best ? "best" : "last";
  TestedRunner runner(config);
  REQUIRE(runner.train().best_index() == 1);
  const auto dir = runner.workspace().dir();
  const dl::State before = dl::clone(runner.state_dict());
  const double loss = *runner.test().number("held.loss");
  dl::State after = runner.state_dict();
  CHECK(dl::first_difference(before.at("model"), after.at("model")) == "");
  CHECK(dl::first_difference(before.at("optimizer"), after.at("optimizer")) == "");
  CHECK(dl::first_difference(before.at("state"), after.at("state")) == "");
  runner.write_summary("finished");
  CHECK(runner.close());
  CHECK(loss == loss_of(dir / "checkpoints" / (best ? "best.pth" : "latest.pth")));
  CHECK(loss != loss_of(dir / "checkpoints" / (best ? "latest.pth" : "best.pth")));
  CHECK(runner.tested_weights() == (best ? "epoch 2 (best)" : "epoch 3 (last)"));
  CHECK(details_of(dir)["test_weights"] == runner.tested_weights());
}

TEST_CASE("test_with: a test with the best weights changes no bit of further training", "[runner]") {
  const Folder folder;
  auto config = tested_config(folder);
  config.epochs = 5;
  config.patience = 1;
  const auto whole = [&](const char* with) {
    config.test_with = with;
    config.epochs = 3;
    config.patience = std::numeric_limits<double>::infinity();
    {
      TestedRunner runner(config);
      runner.train();
      runner.test();
    }
    config.epochs = 5;
    config.auto_resume = true;
    TestedRunner runner(config);
    runner.train();
    CHECK(runner.close());
    config.auto_resume = false;
    return outcome_of(runner.workspace().dir());
  };
  check_same(whole("last"), whole("best"));
}

TEST_CASE("test_with: if the last weights are the best, or best.pth is missing, the weights of the model are tested",
          "[runner]") {
  const Folder folder;
  auto config = tested_config(folder);
  config.test_with = "best";
  config.epochs = GENERATE(2, 3);
  TestedRunner runner(config);
  runner.train();
  const auto file = runner.workspace().checkpoint_dir() / "best.pth";
  fs::remove(file);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  const double loss = *runner.test().number("held.loss");
  CHECK(runner.close());
  CHECK(loss == loss_of(file.parent_path() / "latest.pth"));
  if (config.epochs == 2) {
    CHECK(warnings.empty());
  } else {
    CHECK(warnings == std::vector<std::string>{"test_with: best: expected the weights of the best result in best.pth, "
                                               "got none; uses the last weights"});
  }
  CHECK(runner.tested_weights() == (config.epochs == 2 ? "epoch 2 (last, best)" : "epoch 3 (last)"));
}

TEST_CASE("checkpoint.export_with: model.pth has the last weights or those of the best score", "[runner]") {
  const Folder folder;
  auto config = tested_config(folder);
  const bool best = GENERATE(false, true);
  const bool model_only = GENERATE(false, true);
  config.checkpoint.export_with = best ? "best" : "last";
  config.checkpoint.last_save_model_only = model_only;
  TestedRunner runner(config);
  runner.train();
  const dl::State last = dl::clone(runner.state_dict().at("model"));
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto files = runner.workspace().checkpoint_dir();
  const dl::State of_best = dl::load_file(files / "best.pth").at("model");
  REQUIRE(dl::first_difference(last, of_best) != "");
  CHECK(dl::first_difference(dl::load_file(files / "model.pth").at("model"), best ? of_best : last) == "");
  CHECK(dl::first_difference(dl::load_file(files / "latest.pth").at("model"), last) == "");
  CHECK(runner.exported_weights() == (best ? "epoch 2 (best)" : "epoch 3 (last)"));
  CHECK(details_of(files.parent_path())["model_weights"] == runner.exported_weights());
  CHECK(fs::exists(files / "model.safetensors"));
}

TEST_CASE("checkpoint.export_with: the next start of a finished run without model.pth exports it again", "[runner]") {
  const Folder folder;
  auto config = tested_config(folder);
  config.checkpoint.export_with = "best";
  const auto files = [&] {
    TestedRunner runner(config);
    runner.train();
    return runner.workspace().checkpoint_dir();
  }();
  fs::remove(files / "model.pth");
  config.auto_resume = true;
  {
    TestedRunner(config).train();
  }
  CHECK(dl::first_difference(dl::load_file(files / "model.pth").at("model"),
                             dl::load_file(files / "best.pth").at("model")) == "");
}

/// The text that a program with these arguments prints; without `work` it trains and tests.
std::string printed_with(std::vector<std::string> words, const std::function<void(TestedRunner&)>& work) {
  const Folder folder;
  words.insert(words.begin(), {"program", "--workspace_root", folder.path().string(), "--console", "true", "--epochs",
                               "3", "--test_splits", "[held]"});
  std::vector<char*> arguments;
  for (auto& word : words) {
    arguments.push_back(word.data());
  }
  int code = -1;
  const auto text = printed_by([&] {
    const auto count = static_cast<int>(arguments.size());
    code = work ? dl::run<TestedRunner, TinyConfig>(count, arguments.data(), work)
                : dl::run<TestedRunner, TinyConfig>(count, arguments.data());
  });
  CHECK(code == dl::exit_success);
  return text;
}

TEST_CASE("run: each row of the last table names its weights, also after work of the program", "[runner]") {
  std::function<void(TestedRunner&)> work;
  SECTION("train and test") {}
  SECTION("work of the program") {
    work = [](TestedRunner& runner) {
      runner.train();
      runner.test();
    };
  }
  const auto text = printed_with({"--test_with", "best", "--checkpoint.export_with", "best"}, work);
  CHECK_THAT(text, ContainsSubstring("weights"));
  for (const auto& [split, weights] : std::vector<std::pair<std::string, std::string>>{{"train", "epoch 3 (last)"},
                                                                                       {"val", "epoch 3 (last)"},
                                                                                       {"val", "epoch 2 (best)"},
                                                                                       {"held", "epoch 2 (best)"}}) {
    bool found = false;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto at = line.find(split);
      found = found || (at != std::string::npos && line.find(weights, at) != std::string::npos);
    }
    CAPTURE(text, split, weights);
    CHECK(found);
  }
  CHECK_THAT(text, ContainsSubstring("model.pth: epoch 2 (best)\n"));
}

TEST_CASE("run: work that does not train prints no table", "[runner]") {
  const auto text = printed_with({}, [](TestedRunner& runner) { runner.test(); });
  CHECK(text == "");
}

TEST_CASE("run: with record: false the output has no directory", "[runner]") {
  const auto text = printed_with({"--record", "false", "--test_with", "best"}, nullptr);
  CHECK_THAT(text, ContainsSubstring("epoch 3 (last)"));
  CHECK_THAT(text, !ContainsSubstring("run: "));
  CHECK_THAT(text, !ContainsSubstring("checkpoints: "));
  CHECK_THAT(text, ContainsSubstring("warning: test_with: best: expected the weights of the best result in "
                                     "best.pth, got none; uses the last weights\n"));
}

}  // namespace runner_test
