// The weights that a run is tested and exported with, and which of them each row of the last table is of.
#include "fixture.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <support/terminal.hpp>

namespace runner_test {

/// Epoch 2 of 3 is the best by losses that it is told; `held` is tested at the end.
class TestedRunner : public TinyRunner {
 public:
  explicit TestedRunner(const TinyConfig& config) : TinyRunner(config) {
    datasets["held"] = Points{make_points(20, 2000), false};
  }
  bool told = true;

 protected:
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    auto output = TinyRunner::evaluate_step(batch);
    if (told && split() == "val") {
      constexpr double losses[] = {3, 1, 2};
      output.loss = torch::full({}, losses[std::min<std::int64_t>(state().train.epoch, 2)]);
    }
    return output;
  }
};

TinyConfig tested_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 3;
  config.test_splits = {"held"};
  return config;
}

/// What a program of its own measures with the weights of a checkpoint.
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

TEST_CASE("TorchRunner: test_with chooses between the last weights and those of the best score", "[runner]") {
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

TEST_CASE("TorchRunner: a test with the best weights changes nothing of a run that goes on after it", "[runner]") {
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

TEST_CASE(
    "TorchRunner: where the weights are those of the best already, or best.pth is missing, the model's own are "
    "tested",
    "[runner]") {
  const Folder folder;
  auto config = tested_config(folder);
  config.test_with = "best";
  config.epochs = GENERATE(2, 3);
  TestedRunner runner(config);
  runner.train();
  const auto file = runner.workspace().checkpoint_dir() / "best.pth";
  fs::remove(file);
  std::string warnings;
  runner.logger().set_sink(
      [&](dl::LogLevel level, std::string_view text) { warnings += level == dl::LogLevel::warning ? text : ""; });
  const double loss = *runner.test().number("held.loss");
  CHECK(runner.close());
  CHECK(loss == loss_of(file.parent_path() / "latest.pth"));
  CHECK(warnings == (config.epochs == 2 ? ""
                                        : "test_with: best: expected the weights of the best result in best.pth, got "
                                          "none; those of the last are taken"));
  CHECK(runner.tested_weights() == (config.epochs == 2 ? "epoch 2 (last, best)" : "epoch 3 (last)"));
}

TEST_CASE("TorchRunner: checkpoint.export_with best writes the weights of the best score to model.pth", "[runner]") {
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

TEST_CASE("TorchRunner: a finished run that lost model.pth exports the best weights again", "[runner]") {
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
  { TestedRunner(config).train(); }
  CHECK(dl::first_difference(dl::load_file(files / "model.pth").at("model"),
                             dl::load_file(files / "best.pth").at("model")) == "");
}

/// What a program prints, both streams.
template <class Run>
std::string printed_by(const Run& run) {
  danling_test::Pipe output;
  const int out = ::dup(STDOUT_FILENO);
  const int err = ::dup(STDERR_FILENO);
  std::fflush(stdout);
  ::dup2(output.end(), STDOUT_FILENO);
  ::dup2(output.end(), STDERR_FILENO);
  run();
  std::fflush(stdout);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::close(out);
  ::close(err);
  return output.text();
}

/// What a program with these arguments, and work of its own or without, prints.
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

TEST_CASE("run: each row of the last table says which weights it is of, also where the work is the program's own",
          "[runner]") {
  std::function<void(TestedRunner&)> work;
  SECTION("train and test") {}
  SECTION("work of the program's own") {
    work = [](TestedRunner& runner) {
      runner.train();
      runner.test();
    };
  }
  const auto text = printed_with({"--test_with", "best", "--checkpoint.export_with", "best"}, work);
  CHECK_THAT(text, Catch::Matchers::Contains("weights"));
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
  CHECK_THAT(text, Catch::Matchers::Contains("model.pth: epoch 2 (best)\n"));
}

TEST_CASE("run: work that does not train prints no table", "[runner]") {
  const auto text = printed_with({}, [](TestedRunner& runner) { runner.test(); });
  CHECK(text == "");
}

TEST_CASE("run: with record false no directory is named, and none is written", "[runner]") {
  const auto text = printed_with({"--record", "false", "--test_with", "best"}, nullptr);
  CHECK_THAT(text, Catch::Matchers::Contains("epoch 3 (last)"));
  CHECK_THAT(text, !Catch::Matchers::Contains("run: "));
  CHECK_THAT(text, !Catch::Matchers::Contains("checkpoints: "));
  CHECK_THAT(text, Catch::Matchers::Contains("warning: test_with: best: expected the weights of the best result in "
                                             "best.pth, got none; those of the last are taken\n"));
}

}  // namespace runner_test
