// The splits that are trained and evaluated, and names of splits and scores that do not exist.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("splits: without evaluate_splits a run trains without evaluation", "[runner]") {
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

TEST_CASE("splits: the result of a split that is trained and evaluated is that of the evaluation", "[runner]") {
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
  // Evaluation in two epochs and after them, beside the lines of training.
  const auto lines = metrics_of(runner.workspace().dir());
  CHECK(count(lines, R"({"split":"train","mode":"evaluate")") == 3);
  CHECK(count(lines, R"({"split":"train","mode":"train")") > 2);
}

TEST_CASE("splits: evaluation of the training split changes no bit of training, also after a stop", "[runner]") {
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

  // Stopped between the two evaluations: the first is not repeated.
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

TEST_CASE("splits: a misspelt split is an error that lists the splits, before any evaluation", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.evaluate({"val", "vall"}); }) ==
        "[data.split] expected one of the splits [train, val], got 'vall'; did you mean 'val'?");
  CHECK(runner.split().empty());
  CHECK(error_of<dl::ConfigError>([&] { runner.train({"trian"}); }) ==
        "[runner.train] expected splits among [train], got 'trian'; did you mean 'train'?");
}

TEST_CASE("evaluate_steps: a stream that ends before a twentieth of the run is evaluated whole", "[runner]") {
  struct Short : PointStream {
    Short() { all = make_points(16, 1000); }
    bool train() const { return false; }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 60;
  TinyRunner runner(config);
  runner.datasets["val"] = Short();
  runner.train();
  REQUIRE(runner.evaluation_batches == 2);
  CHECK(runner.evaluate_steps("val").number("loss") != nullptr);
  CHECK(error_of<dl::DataError>([&] { runner.evaluate_steps("val", 3); }) ==
        "[runner.evaluate_steps] expected 3 batches in split 'val', got 2");
}

TEST_CASE("evaluate_steps: more steps than the split has are an error before the first", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  CHECK(error_of<dl::DataError>([&] { runner.evaluate_steps("val", 4); }) ==
        "[runner.evaluate_steps] expected 4 batches in split 'val', got 3");
  CHECK(runner.evaluation_batches == 0);
  CHECK(runner.evaluate_steps("val", 2).number("loss") != nullptr);
  CHECK(runner.evaluation_batches == 2);
  CHECK(runner.state().train.global_step == 0);
}

TEST_CASE("score_name: a name that no metric has is a warning before training, with the names", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.score_name = "accc";
  TinyRunner runner(config);
  std::vector<std::string> warnings;
  std::vector<std::string> before_training;
  collect_warnings(runner, warnings);
  runner.before_step = [&](TinyRunner&, std::int64_t done) {
    if (done == 0) {
      before_training = warnings;
    }
  };
  runner.train();
  CHECK(before_training ==
        std::vector<std::string>{"score_name: expected one of [loss, acc], or a meter that evaluate_step updates, got "
                                 "'accc'; did you mean 'acc'?"});
  CHECK(warnings.back() ==
        "no score 'accc' in the results of split 'val', which has [loss, acc]: no best checkpoint is kept; set "
        "score_name; did you mean 'acc'?");
}

TEST_CASE("score_name: a part of a metric that does not exist is an error before training", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.score_name = "losses.mse.1";
  TinyRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
        "[runner.score_name] expected one of [loss, acc] for score_name, got 'losses.mse.1'");
  CHECK(runner.micro_batches == 0);
}

TEST_CASE("score_name: names of metrics and losses give no warning", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  SECTION("a metric") { config.score_name = "acc"; }
  SECTION("the loss") {}
  TinyRunner runner(config);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(warnings.empty());
}

TEST_CASE("splits: a split for evaluation or tests that drop_last leaves without a batch is a warning", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.dataloader.drop_last = true;
  std::string tested;
  SECTION("evaluation") {}
  SECTION("tests") {
    tested = "test";
    config.test_splits = std::vector<std::string>{tested};
  }
  TinyRunner runner(config);
  runner.datasets[tested.empty() ? "val" : tested] = Points{make_points(5, 1000), false};
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train();
  REQUIRE(!warnings.empty());
  CHECK(warnings[0] == "split '" + (tested.empty() ? "val" : tested) +
                           "' has no batch: it has fewer records than a batch of all processes, and drop_last leaves "
                           "them out; lower batch_size, or set dataloader.drop_last: false");
}

TEST_CASE("splits: a name that is empty, has a slash or is of dots is an error", "[runner]") {
  const Folder folder;
  for (const std::string name : {"", "a/b", "../val", "..", "."}) {
    TinyConfig config(folder);
    config.epochs = 1;
    TinyRunner runner(config);
    runner.datasets[name] = Points{make_points(20, 1000), false};
    CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) ==
          "[runner.splits] expected the name of a split, without slashes, neither empty nor '.' or '..', got '" + name +
              "'; rename it in `datasets`");
  }
}

TEST_CASE("splits: test_with: best without test_splits, or without an evaluation, is a warning", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.test_with = "best";
  std::string reason = "without test_splits";
  SECTION("without test_splits") {}
  SECTION("without an evaluation") {
    config.test_splits = std::vector<std::string>{"val"};
    reason = "without a split to evaluate, whose score it reads";
  }
  TinyRunner runner(config);
  std::vector<std::string> warnings;
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(warnings == std::vector<std::string>{"test_with: best has no effect " + reason});
}

}  // namespace
}  // namespace runner_test
