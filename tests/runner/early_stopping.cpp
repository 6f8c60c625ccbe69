// Early stopping by patience.
#include <danling/runner/early_stopping.hpp>
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

}  // namespace
}  // namespace runner_test
