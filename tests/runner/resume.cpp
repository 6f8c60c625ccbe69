// Runs that stop and resume equal runs that do not, bit for bit.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("resume: a run that stops and resumes equals one that does not, bit for bit", "[runner]") {
  TinyConfig config;
  config.epochs = 4;
  config.log_interval = 2;
  SECTION("plain") {}
  SECTION("accumulation: a window is finished before the run stops") { config.accum_steps = 3; }
  SECTION("a schedule") {
    config.sched.type = "cosine";
    config.optim.type = "sgd";
    config.optim.momentum = 0.9;
  }
  SECTION("steps") {
    config.epochs.reset();
    config.steps = 26;
    config.checkpoint.interval = 5;
  }
  const auto whole = run_through(config);
  check_same(whole, run_stopped(config, {0, 0, 3, 6, 1}));
  check_same(whole, run_stopped(config, {6, 6}));
  check_same(whole, run_stopped(config, {12}));
}

TEST_CASE("resume: a run that stops at its last step ends its round after resume", "[runner]") {
  TinyConfig config;
  config.steps = 26;  // the fourth round ends before its pass over the data
  config.log_interval = 2;
  config.checkpoint.interval = 13;
  check_same(run_through(config), run_stopped(config, {25}));
}

TEST_CASE("resume: a run that stops again before its first step keeps its meters", "[runner]") {
  TinyConfig config;
  config.log_interval = 2;
  SECTION("epochs") { config.epochs = 3; }
  SECTION("steps") { config.steps = 20; }
  const auto whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  {
    TinyRunner runner(config);
    train_until(runner, 9);
  }
  {
    TinyRunner runner(config);
    runner.request_stop();
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
  }
  check_same(whole, outcome_of(trained(config)));
}

TEST_CASE("resume: an evaluation that a stop interrupts is repeated with the same random numbers", "[runner]") {
  struct Noisy : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      auto output = TinyRunner::evaluate_step(batch);
      output.loss = output.loss + torch::rand({});  // an evaluation that draws numbers
      return output;
    }
  };
  const auto train = [](std::int64_t stop_at) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 3;
    if (stop_at >= 0) {
      Noisy runner(config);
      train_until_evaluation(runner, stop_at);
    }
    config.auto_resume = true;
    Noisy runner(config);
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  const auto whole = train(-1);
  check_same(whole, train(0));
  check_same(whole, train(4));
}

TEST_CASE("resume: a run on a stream resumes from any micro-batch with the same lines of metrics", "[runner]") {
  struct Streamed : TinyRunner {
    explicit Streamed(const TinyConfig& config) : TinyRunner(config) { datasets["train"] = PointStream(); }
  };
  const bool drop_last = GENERATE(false, true);
  const std::int64_t log_interval = GENERATE(1, 2, 4);
  const auto run = [&](std::int64_t stop) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    config.log_interval = log_interval;
    config.dataloader.drop_last = drop_last;
    config.dataloader.splits["train"].num_workers = 2;
    if (stop >= 0) {
      Streamed stopped(config);
      train_until(stopped, stop);
    }
    config.auto_resume = true;
    Streamed runner(config);
    runner.train();
    return outcome_of(runner.workspace().dir());
  };
  const Outcome whole = run(-1);
  for (std::int64_t stop = 0; stop < (drop_last ? 12 : 14); ++stop) {
    INFO(stop);
    check_same(whole, run(stop));
  }
}

TEST_CASE("resume: a finished run continues with more epochs", "[runner]") {
  TinyConfig config;
  config.log_interval = 3;  // its default depends on the number of epochs
  config.epochs = 6;
  const auto whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.epochs = 3;
  trained(config);
  config.epochs = 6;
  config.auto_resume = true;
  check_same(whole, outcome_of(trained(config)));
}

TEST_CASE("resume: an extended run that stops in its last evaluation finishes after resume", "[runner]") {
  const auto train = [](bool stopped) {
    const Folder folder;
    TinyConfig config(folder);
    config.log_interval = 5;
    config.sched.type = "constant";
    config.sched.warmup_steps = 0;
    config.sched.cooldown_steps = 0;
    config.checkpoint.interval = 4;
    config.auto_resume = true;
    config.steps = 10;
    trained(config);
    config.steps = 24;
    if (stopped) {
      TinyRunner runner(config);
      train_until_evaluation(runner, 0);
    }
    return outcome_of(trained(config));
  };
  check_same(train(false), train(true));
}

TEST_CASE("auto_resume: without a checkpoint the log names the lineage in which it looked", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.lineage = "first";
  trained(config);
  config.lineage = "second";
  config.auto_resume = true;
  const fs::path run = trained(config);
  const fs::path log = fs::directory_iterator(run / "logs")->path();
  CHECK_THAT(read_file(log),
             ContainsSubstring("auto_resume: found no checkpoint of config " + run.filename().string()));
  CHECK_THAT(read_file(log),
             ContainsSubstring(" in lineage 'second' below " + config.workspace_root + "; starts a new run"));
}

TEST_CASE("auto_resume: after a change of options the log says which, and where the run with the others is",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.lr = 0.25;
  const fs::path earlier = trained(config);
  config.optim.lr = 0.125;
  config.auto_resume = true;
  const fs::path run = trained(config);
  CHECK(run != earlier);
  const fs::path log = fs::directory_iterator(run / "logs")->path();
  CHECK_THAT(read_file(log), ContainsSubstring("auto_resume: the lineage's last run is " + earlier.string() +
                                               ", where optim.lr is 0.25 there and 0.125 here\n"));
}

TEST_CASE("auto_resume: names the checkpoint that a failed start moved aside, which resume takes", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  const fs::path run = trained(config);
  {
    TinyRunner failing(config);
    failing.before_step = [](TinyRunner&, std::int64_t) { throw std::runtime_error("a start that fails"); };
    CHECK_THROWS(failing.train());
  }
  config.epochs = 3;
  config.auto_resume = true;
  trained(config);
  std::string texts;
  for (const auto& log : fs::directory_iterator(run / "logs")) {
    texts += read_file(log.path());
  }
  const std::string begin =
      "auto_resume: a new start moved the checkpoints of this config aside; to continue from them, --resume ";
  const auto at = texts.find(begin);
  REQUIRE(at != texts.npos);
  config.auto_resume = false;
  config.resume = texts.substr(at + begin.size(), texts.find('\n', at) - at - begin.size());
  CHECK(config.resume->starts_with((run / "attempts").string()));
  TinyRunner resumed(config);
  resumed.initialize();
  CHECK(resumed.state().train.epoch == 2);
}

TEST_CASE("resume, pretrained: a directory of a run is refused with the file to name", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const fs::path run = trained(config), checkpoints = run / "checkpoints";
  const auto error = [&](std::optional<std::string> TinyConfig::* key, const fs::path& path) {
    TinyConfig other = config;
    other.lineage = "other";
    other.*key = path.string();
    TinyRunner runner(other);
    return error_of<dl::ConfigError>([&] { runner.initialize(); });
  };
  CHECK(error(&TinyConfig::resume, run) ==
        "[runner.resume] expected a checkpoint, got the directory of a run; name the file: " +
            (checkpoints / "latest.pth").string());
  CHECK(error(&TinyConfig::resume, checkpoints) ==
        "[runner.resume] expected a checkpoint, got the directory of the checkpoints of a run; name the file: " +
            (checkpoints / "latest.pth").string());
  CHECK(error(&TinyConfig::pretrained, run) ==
        "[runner.load_pretrained] expected a checkpoint, got the directory of a run; name the file: " +
            (checkpoints / "model.pth").string());
  config.lineage = "shards";
  config.checkpoint.backend = "dcp";
  const fs::path shards = trained(config);
  CHECK(error(&TinyConfig::resume, shards) ==
        "[runner.resume] expected a checkpoint, got the directory of a run; name the file: " +
            (shards / "checkpoints/latest.pointer").string());
  CHECK(error(&TinyConfig::resume, shards / "checkpoints") ==
        "[runner.resume] expected a checkpoint, got the directory of the checkpoints of a run; name the file: " +
            (shards / "checkpoints/latest.pointer").string());
}

}  // namespace
}  // namespace runner_test
