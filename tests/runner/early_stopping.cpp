// Early stopping by patience.
#include <danling/runner/early_stopping.hpp>

#include <cmath>
#include <limits>

#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("EarlyStopping: patience ends a run whose scores get worse", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 20;
  config.patience = 2;
  config.optim.lr = 1e-12;
  config.optim.weight_decay = 0.0;
  TinyRunner runner(config);
  runner.evaluation_loss = [](std::int64_t epoch) { return static_cast<double>(epoch + 1); };
  runner.train();
  // Epoch 0 is the best; epochs 1 and 2 are worse.
  CHECK(runner.state().train.epoch == 3);
}

TEST_CASE("EarlyStopping: patience ends a run whose scores stay equal", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 20;
  config.patience = 0;
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch({1});
  runner.train();
  CHECK(runner.state().train.epoch == 2);
}

TEST_CASE("EarlyStopping: by steps patience counts the evaluations of evaluate_interval, and the run stays ended",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 100;
  config.evaluate_interval = 5;
  config.patience = 2;
  {
    TinyRunner runner(config);
    runner.evaluation_loss = losses_by_epoch({1});
    runner.train();
    CHECK(runner.state().train.global_step == 15);
    CHECK(runner.results().rows().size() == 3);
    CHECK(runner.close());
    CHECK_THAT(logs_of(runner.workspace().dir()),
               ContainsSubstring("train: early stop, 2 evaluations without a better loss"));
  }
  config.auto_resume = true;
  TinyRunner again(config);
  again.evaluation_loss = losses_by_epoch({1});
  again.train();
  CHECK(again.state().train.global_step == 15);
  CHECK(again.close());
  CHECK_THAT(logs_of(again.workspace().dir()),
             ContainsSubstring("train: nothing to do, 15 of 100 steps are done and early stopping has ended the run"));
}

TEST_CASE("EarlyStopping: rows without a score do not count, and a run without a split to evaluate warns", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 6;
  config.patience = 2;
  config.evaluate_splits = std::vector<std::string>();
  std::vector<std::string> warnings;
  TinyRunner runner(config);
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(runner.state().train.epoch == 6);
  CHECK(warnings ==
        std::vector<std::string>{"patience has no effect without a split to evaluate, whose score it watches"});
}

TEST_CASE("EarlyStopping: with min_delta an improvement counts when it exceeds it, and the best score stays the best",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 20;
  config.patience = 2;
  config.min_delta = 0.1;
  SECTION("lower is better") {
    TinyRunner runner(config);
    // 0.75 exceeds 1 - 0.1; then 0.65 equals 0.75 - 0.1 and 0.655 is above it.
    runner.evaluation_loss = losses_by_epoch({1, 0.95, 0.75, 0.65, 0.655, 0.1});
    runner.train();
    CHECK(runner.state().train.epoch == 5);
    CHECK(runner.results().best_index() == 3);
    CHECK(runner.close());
    CHECK_THAT(logs_of(runner.workspace().dir()),
               ContainsSubstring("train: early stop, 2 epochs without a better loss (by more than 0.1)"));
    CHECK(
        dl::load_file(runner.workspace().checkpoint_dir() / "best.pth").at("state").at("train").at("epoch").integer() ==
        4);
  }
  SECTION("higher is better") {
    config.score_mode = "max";
    TinyRunner runner(config);
    runner.evaluation_loss = losses_by_epoch({1, 1.2, 1.3, 1.29, 5});
    runner.train();
    CHECK(runner.state().train.epoch == 4);
    CHECK(runner.results().best_index() == 2);
  }
}

TEST_CASE("EarlyStopping: small scores improve like large ones", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 9;
  config.patience = 2;
  TinyRunner runner(config);
  runner.evaluation_loss = losses_by_epoch({9e-8, 7e-8, 5e-8, 3e-8, 3e-8});
  runner.train();
  CHECK(runner.state().train.epoch == 6);
  CHECK(runner.results().best_index() >= 3);
}

TEST_CASE("EarlyStopping: small improvements add up to one that counts", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 9;
  config.patience = 2;
  config.min_delta = 0.1;
  TinyRunner runner(config);
  // Each second score is more than 0.1 below the last one that counted.
  runner.evaluation_loss = losses_by_epoch({1, 0.93, 0.86, 0.79, 0.72, 0.65, 0.58, 0.51, 0.44});
  runner.train();
  CHECK(runner.state().train.epoch == 9);
}

TEST_CASE("EarlyStopping: NaN and infinite scores are never better", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 9;
  config.patience = 3;
  config.score_mode = GENERATE("min", "max");
  TinyRunner runner(config);
  const double infinity = std::numeric_limits<double>::infinity();
  runner.evaluation_loss = losses_by_epoch({1, std::nan(""), infinity, -infinity, 0.1});
  runner.train();
  CHECK(runner.state().train.epoch == 4);
}

TEST_CASE("EarlyStopping: its count is resumed", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 20;
  config.patience = 4;
  config.min_delta = 0.5;
  config.auto_resume = true;
  const auto losses = losses_by_epoch({1, 0.9, 0.8, 0.7, 0.6, 0.55});
  {
    TinyRunner runner(config);
    runner.evaluation_loss = losses;
    train_until(runner, 3 * 7 + 2);  // in the fourth epoch
  }
  TinyRunner runner(config);
  runner.evaluation_loss = losses;
  runner.train();
  CHECK(runner.state().train.epoch == 5);
}

TEST_CASE("EarlyStopping: a run that min_delta has ended and that kept the model alone is found finished", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.patience = 2;
  config.min_delta = 0.5;
  config.checkpoint.last_save_model_only = true;
  config.auto_resume = true;
  std::int64_t ended = 0;
  SECTION("by epochs") {
    config.epochs = 20;
    ended = 21;
  }
  SECTION("by steps") {
    config.steps = 100;
    config.evaluate_interval = 7;
    ended = 21;
  }
  const auto losses = losses_by_epoch({1, 0.9, 0.8, 0.7});  // the newest is always the best
  {
    TinyRunner runner(config);
    runner.evaluation_loss = losses;
    runner.train();
    runner.write_summary("finished");  // as dl::run does
  }
  TinyRunner again(config);
  again.evaluation_loss = losses;
  again.train();
  CHECK(again.micro_batches == 0);
  CHECK(again.state().train.global_step == ended);
}

}  // namespace
}  // namespace runner_test
