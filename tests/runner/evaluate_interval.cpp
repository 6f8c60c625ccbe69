// evaluate_interval: evaluations within a run by steps.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("evaluate_interval: options that contradict it are errors, and patience without it is a warning",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.evaluate_interval = 5;
  CHECK(error_of<dl::ConfigError>([&] { TinyRunner runner(config); }) ==
        "[config.validate] expected 'evaluate_interval' with 'steps', got it with 'epochs', where every epoch is "
        "evaluated");
  config.epochs.reset();
  config.steps = 10;
  config.sched.type = "linear";
  config.sched.interval = "epoch";
  TinyRunner refused(config);
  CHECK(error_of<dl::ConfigError>([&] { refused.train(); }) ==
        "[runner.train] expected sched.interval step with evaluate_interval, which cuts passes over the data, got "
        "'epoch'");
  config.sched = {};
  config.evaluate_interval.reset();
  config.patience = 3;
  std::vector<std::string> warnings;
  TinyRunner runner(config);
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(warnings == std::vector<std::string>{"patience has no effect by `steps` unless evaluate_interval is set"});
}

TEST_CASE("evaluate_interval: without it the log of a run by steps says how much of a split its evaluation covers",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 20;
  const auto log_of_run = [&] {
    TinyRunner runner(config);  // 3 batches of split val
    runner.train();
    runner.close();
    return logs_of(runner.workspace().dir());
  };
  const std::string line =
      "evaluate: the run ends with 1 of 3 batches of split 'val' (steps / 20); set evaluate_interval to evaluate the "
      "whole split";
  CHECK_THAT(log_of_run(), ContainsSubstring(line));
  SECTION("with it, it is the whole split") { config.evaluate_interval = 20; }
  SECTION("a longer run may cover the whole split") { config.steps = 60; }
  SECTION("epochs do") {
    config.steps.reset();
    config.epochs = 1;
  }
  CHECK_THAT(log_of_run(), !ContainsSubstring("the run ends with"));
}

TEST_CASE("evaluate_interval: its evaluations choose the best, and the run resumes bit for bit", "[runner]") {
  TinyConfig config;
  config.steps = 23;
  config.evaluate_interval = 4;
  config.checkpoint.interval = 6;
  config.accum_steps = 2;
  config.log_interval = 3;
  const Outcome whole = run_through(config);
  for (const std::int64_t at : {7, 8, 16, 30, 38}) {
    INFO("stopped before micro-batch " << at);
    const Folder folder;
    config.workspace_root = folder.path().string();
    config.auto_resume = false;
    {
      TinyRunner runner(config);
      train_until(runner, at);
    }
    config.auto_resume = true;
    TinyRunner runner(config);
    runner.train();
    CHECK(runner.close());
    CHECK(indices_of(runner.results()) == std::vector<std::int64_t>{4, 8, 12, 16, 20, 23});
    CHECK(fs::exists(runner.workspace().checkpoint_dir() / "best.pth"));
    check_same(whole, outcome_of(runner.workspace().dir()));
  }
}

TEST_CASE("evaluate_interval: each training split gets its share of the steps", "[runner]") {
  struct Three : TinyRunner {
    explicit Three(const TinyConfig& config) : TinyRunner(config) {
      for (const auto* name : {"train_b", "train_c"}) {
        datasets[name] = Points{make_points(config.records, 0), true};
      }
    }
    std::map<std::string, std::int64_t> seen;
    dl::StepOutput train_step(dl::Batch& batch) override {
      ++seen[split()];
      return TinyRunner::train_step(batch);
    }
  };
  for (const std::int64_t interval : {0, 1, 2, 4}) {
    const Folder folder;
    TinyConfig config(folder);
    config.steps = 24;
    if (interval > 0) {
      config.evaluate_interval = interval;
    }
    Three runner(config);
    runner.train();
    INFO("evaluate_interval " << interval);
    CHECK(runner.seen == std::map<std::string, std::int64_t>{{"train", 8}, {"train_b", 8}, {"train_c", 8}});
  }
}

}  // namespace
}  // namespace runner_test
