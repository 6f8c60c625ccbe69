// Which splits are trained and evaluated, and the names of splits and scores that do not exist.
#include "fixture.hpp"

namespace runner_test {

std::string warnings_of(TinyRunner& runner, const std::function<void()>& run) {
  std::string out;
  runner.logger().set_sink([&](dl::LogLevel level, std::string_view text) {
    if (level == dl::LogLevel::warning) {
      out += std::string(text) + "\n";
    }
  });
  run();
  runner.logger().set_sink(nullptr);
  return out;
}

TEST_CASE("TorchRunner: no evaluate_splits means training without evaluation", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  SECTION("epochs") { config.epochs = 2; }
  SECTION("steps") { config.steps = 5; }
  config.evaluate_splits = std::vector<std::string>();
  TinyRunner runner(config);
  const auto& results = runner.train();
  CHECK(results.latest()->result.contains("train"));
  CHECK_FALSE(results.latest()->result.contains("val"));
  CHECK_FALSE(results.best_score());
  CHECK(runner.close());
  CHECK_FALSE(fs::exists(runner.workspace().dir() / "best.json"));
}

TEST_CASE("TorchRunner: of a split that trains and is evaluated, the row has the numbers of the evaluation",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.evaluate_splits = std::vector<std::string>{"train", "val"};
  config.score_split = "train";
  TinyRunner runner(config);
  runner.train();
  const dl::Result row = runner.results().latest()->result;
  const dl::Result after = runner.evaluate({"train", "val"});
  CHECK(*row.number("train.loss") == *after.number("train.loss"));
  CHECK(*row.number("train.acc") == *after.number("train.acc"));
  CHECK(*row.number("val.loss") == *after.number("val.loss"));
  CHECK(runner.close());
  // In two epochs and after them; the training pass has lines of its own.
  const auto lines = metrics_of(runner.workspace().dir());
  CHECK(count(lines, R"({"split":"train","mode":"evaluate")") == 3);
  CHECK(count(lines, R"({"split":"train","mode":"train")") > 2);
}

TEST_CASE("TorchRunner: training on an evaluated split is that of one that is not, also when it is stopped",
          "[runner]") {
  const bool by_steps = GENERATE(false, true);
  const auto configure = [&](const Folder& folder, bool evaluated) {
    TinyConfig config(folder);
    if (by_steps) {
      config.steps = 12;
      config.evaluate_interval = 5;  // in the middle of a pass
    } else {
      config.epochs = 2;
    }
    if (evaluated) {
      config.evaluate_splits = std::vector<std::string>{"train", "val"};
    }
    return config;
  };
  const Folder plain;
  const auto reference = dl::load_file(trained(configure(plain, false)) / "checkpoints" / "latest.pth");
  const Folder folder;
  auto config = configure(folder, true);
  const auto whole = outcome_of(trained(config));
  CHECK(dl::first_difference(reference.at("model"), whole.checkpoint.at("model")) == "");

  // Stopped between the two evaluations: what is done is not done again.
  const Folder parts;
  config.workspace_root = parts.path().string();
  class Stopper : public dl::Callback {
   public:
    void on_evaluate_end(const dl::SplitEvent& event) override {
      if (event.split == "train" && ++seen_ == 1) {
        event.runner.request_stop();
      }
    }

   private:
    int seen_ = 0;
  };
  {
    TinyRunner runner(config);
    runner.add(Stopper());
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
    CHECK(runner.close());
  }
  config.auto_resume = true;
  check_same(outcome_of(trained(config)), whole);
}

TEST_CASE("TorchRunner: a misspelt split is one error that lists those there are, before anything is evaluated",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  CHECK(danling_test::error_of<dl::ConfigError>([&] {
          runner.evaluate({"val", "vall"});
        }) == "[data.split] expected one of the splits [train, val], got 'vall'; did you mean 'val'?");
  CHECK(runner.split().empty());
  CHECK(danling_test::error_of<dl::ConfigError>([&] { runner.train({"trian"}); }) ==
        "[runner.train] expected splits among [train], got 'trian'; did you mean 'train'?");
}

TEST_CASE("TorchRunner: more evaluation steps than the split has are refused before the first", "[runner]") {
  const Folder folder;
  class Counting : public TinyRunner {
   public:
    using TinyRunner::TinyRunner;
    int evaluated = 0;

   protected:
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      ++evaluated;
      return TinyRunner::evaluate_step(batch);
    }
  };
  Counting runner{TinyConfig(folder)};
  CHECK(danling_test::error_of<dl::DataError>([&] { runner.evaluate_steps("val", 4); }) ==
        "[runner.evaluate_steps] expected 4 batches in split 'val', got 3");
  CHECK(runner.evaluated == 0);
}

TEST_CASE("TorchRunner: a score that no metric has is told before training, with the names there are", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.score_name = "accc";
  TinyRunner runner(config);
  std::string early;
  runner.before_step = [&](TinyRunner&, std::int64_t) {
    if (early.empty()) {
      early = "stepped";
    }
  };
  const auto text = warnings_of(runner, [&] { runner.train(); });
  CHECK_THAT(text, Catch::Matchers::StartsWith("score_name: expected one of [loss, acc], or a meter that evaluate_step "
                                               "feeds, got 'accc'; did you mean 'acc'?\n"));
  CHECK_THAT(text, Catch::Matchers::Contains("no score 'accc' in the results of split 'val', which has [loss, acc]: no "
                                             "best checkpoint is kept; set score_name; did you mean 'acc'?\n"));
}

TEST_CASE("TorchRunner: a part of something that no metric is named after is an error before training", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.score_name = "losses.mse.1";
  TinyRunner runner(config);
  CHECK(danling_test::error_of<dl::ConfigError>([&] { runner.train(); }) ==
        "[runner.score_name] expected one of [loss, acc] for score_name, got 'losses.mse.1'");
  CHECK(runner.micro_batches == 0);
}

TEST_CASE("TorchRunner: scores of metrics, of losses and of one's own meters pass", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  SECTION("a metric") { config.score_name = "acc"; }
  SECTION("the loss") {}
  TinyRunner runner(config);
  CHECK(warnings_of(runner, [&] { runner.train(); }).find("score") == std::string::npos);
}

}  // namespace runner_test
