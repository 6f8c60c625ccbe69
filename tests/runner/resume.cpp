#include "fixture.hpp"

namespace runner_test {

/// Trains the same, stopped before the micro-batches `stops` (counted over all attempts) and resumed each time.
Outcome run_stopped(TinyConfig config, const std::vector<std::int64_t>& stops) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  std::size_t next = 0;
  for (std::int64_t attempt = 0; attempt < 100; ++attempt) {
    TinyRunner runner(config);
    std::int64_t in_attempt = 0;
    runner.before_step = [&](TinyRunner& self, std::int64_t) {
      if (next < stops.size() && in_attempt++ == stops[next]) {
        self.request_stop();
        ++next;
      }
    };
    try {
      runner.train();
    } catch (const dl::Stopped& stopped) {
      CHECK(stopped.signal() == 15);
      continue;
    }
    const auto dir = runner.workspace().dir();
    runner.close();
    CHECK(next == stops.size());
    return outcome_of(dir);
  }
  FAIL("the run never ended");
  return {};
}

TEST_CASE("TorchRunner: a run that is stopped and resumed equals one that is not, bit for bit", "[runner]") {
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

TEST_CASE("TorchRunner: a run that is stopped at its last step ends its round when it goes on", "[runner]") {
  TinyConfig config;
  config.steps = 26;  // the fourth round ends before its pass over the data
  config.log_interval = 2;
  config.checkpoint.interval = 13;
  check_same(run_through(config), run_stopped(config, {25}));
}

TEST_CASE("TorchRunner: a run that is stopped again before it went on keeps its meters", "[runner]") {
  TinyConfig config;
  config.log_interval = 2;
  SECTION("epochs") { config.epochs = 3; }
  SECTION("steps") { config.steps = 20; }
  const auto whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.auto_resume = true;
  for (int attempt = 0;; ++attempt) {
    TinyRunner runner(config);
    if (attempt == 0) {
      runner.before_step = [](TinyRunner& self, std::int64_t done) {
        if (done == 9) {
          self.request_stop();
        }
      };
    } else if (attempt == 1) {
      runner.request_stop();
    }
    try {
      runner.train();
    } catch (const dl::Stopped&) {
      REQUIRE(attempt < 2);
      continue;
    }
    CHECK(attempt == 2);
    const auto dir = runner.workspace().dir();
    runner.close();
    check_same(whole, outcome_of(dir));
    break;
  }
}

TEST_CASE("TorchRunner: a stop where a checkpoint of the history was just saved leaves that as it is", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 20;
  config.checkpoint.interval = 7;  // also the length of a pass: the run stops behind the end of the round
  TinyRunner runner(config);
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 6) {
      self.request_stop();
    }
  };
  CHECK_THROWS_AS(runner.train(), dl::Stopped);
  const auto checkpoints = runner.workspace().checkpoint_dir();
  runner.close();
  CHECK(dl::load_file(checkpoints / "ckpt-s000000000007.pth").at("loop").at("split").string() == "train");
  CHECK(dl::load_file(checkpoints / "latest.pth").at("state").at("train").at("global_step").integer() == 7);
}

TEST_CASE("TorchRunner: a stop inside an evaluation repeats that evaluation, generators included", "[runner]") {
  struct Noisy : TinyRunner {
    using TinyRunner::TinyRunner;
    std::int64_t evaluations = 0;
    std::int64_t stop_at = -1;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      if (evaluations++ == stop_at) {
        request_stop(2);
      }
      auto output = TinyRunner::evaluate_step(batch);
      output.loss = output.loss + torch::rand({});  // an evaluation that draws numbers
      return output;
    }
  };
  const auto train = [](std::int64_t stop_at) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 3;
    config.auto_resume = true;
    for (int attempt = 0;; ++attempt) {
      Noisy runner(config);
      runner.stop_at = attempt == 0 ? stop_at : -1;
      try {
        runner.train();
      } catch (const dl::Stopped&) {
        CHECK(attempt == 0);
        continue;
      }
      const auto dir = runner.workspace().dir();
      runner.close();
      return outcome_of(dir);
    }
  };
  const auto whole = train(-1);
  check_same(whole, train(0));
  check_same(whole, train(4));
}

TEST_CASE("TorchRunner: a finished run is extended by moving its boundary", "[runner]") {
  TinyConfig config;
  config.log_interval = 3;  // its default depends on the boundary
  config.epochs = 6;
  const auto whole = run_through(config);
  const Folder folder;
  config.workspace_root = folder.path().string();
  config.epochs = 3;
  {
    TinyRunner runner(config);
    runner.train();
  }
  config.epochs = 6;
  config.auto_resume = true;
  check_same(whole, outcome_of(trained(config)));
}

TEST_CASE("TorchRunner: the same seed gives the same weights file, byte for byte", "[runner]") {
  std::string first;
  for (int i = 0; i < 2; ++i) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    TinyRunner runner(config);
    runner.train();
    const auto bytes = read_file(runner.workspace().dir() / "checkpoints" / "model.pth");
    CHECK(bytes.size() > 100);
    if (i == 0) {
      first = bytes;
    } else {
      CHECK(first == bytes);
    }
  }
}

TEST_CASE("TorchRunner: a generated seed comes back with the run", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.seed.reset();
  config.epochs = 1;
  std::uint64_t seed = 0;
  {
    TinyRunner runner(config);
    runner.train();
    seed = runner.seed();
  }
  config.epochs = 2;
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.seed() == seed);
  CHECK(runner.state().train.epoch == 2);
}

TEST_CASE("TorchRunner: a fresh start moves what an earlier attempt left aside", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto dir = trained(config);
  const auto first = read_file(dir / "checkpoints" / "latest.pth");
  TinyRunner runner(config);
  runner.evaluate();
  CHECK(runner.workspace().dir() == dir);
  CHECK(read_file(dir / "checkpoints" / "latest.pth") == first);  // only training takes the directory
  CHECK_FALSE(fs::exists(dir / "attempts"));
  runner.before_step = [&](TinyRunner&, std::int64_t) { CHECK_FALSE(fs::exists(dir / "checkpoints" / "latest.pth")); };
  runner.train();
  int attempts = 0;
  for (const auto& attempt : fs::directory_iterator(dir / "attempts")) {
    ++attempts;
    CHECK(read_file(attempt.path() / "checkpoints" / "latest.pth") == first);
  }
  CHECK(attempts == 1);
}

TEST_CASE("TorchRunner: a config that means something else is refused with the difference", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto latest = trained(config) / "checkpoints" / "latest.pth";
  const auto before = read_file(latest);
  config.resume = latest.string();
  config.hidden = 9;
  {
    TinyRunner runner(config);
    CHECK(danling_test::error_of<dl::ConfigError>([&] { runner.train(); }) ==
          "[runner.load_checkpoint] expected a config that means the same as the checkpoint's, got one where hidden is "
          "8 there and 9 here (start a new run, align the config, or put 'runner' into "
          "checkpoint.exclude_from_loading)");
  }
  config.checkpoint.exclude_from_loading = {"runner"};
  {
    TinyRunner runner(config);
    CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.train(); }),
               ContainsSubstring("expected weights of the same architecture, got 3 of another shape (0.weight is Float "
                                 "[9, 4] here and Float [8, 4] there, "));
  }
  config.checkpoint.exclude_from_loading.clear();
  config.hidden = 8;
  config.resume = (folder.path() / "none.pth").string();
  {
    TinyRunner runner(config);
    CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.train(); }), ContainsSubstring("none.pth"));
  }
  // The attempt that the wrong path could have moved aside is where it was.
  CHECK(read_file(latest) == before);
}

TEST_CASE("TorchRunner: parts can be left out of a resume, and pretrained takes weights alone", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  fs::path checkpoints;
  dl::State weights;
  {
    TinyRunner runner(config);
    runner.train();
    checkpoints = runner.workspace().dir() / "checkpoints";
    weights = dl::clone(runner.model.state_dict());
  }
  SECTION("optimizer left out") {
    config.resume = (checkpoints / "latest.pth").string();
    config.checkpoint.exclude_from_loading = {"optimizer", "state.rng"};
    TinyRunner runner(config);
    runner.initialize();
    CHECK(runner.state().train.epoch == 1);
    CHECK(dl::identical(weights, runner.model.state_dict()));
    CHECK(runner.optimizer->state_dict().at("state").map().empty());
  }
  SECTION("weights alone") {
    for (const auto* name : {"latest.pth", "model.pth"}) {
      config.pretrained = (checkpoints / name).string();
      config.lineage = "fine";
      TinyRunner runner(config);
      runner.initialize();
      CHECK(runner.state().train.epoch == 0);
      CHECK(dl::identical(weights, runner.model.state_dict()));
    }
  }
  SECTION("weights alone cannot be resumed") {
    config.resume = (checkpoints / "model.pth").string();
    TinyRunner runner(config);
    CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.initialize(); }),
               ContainsSubstring("set `pretrained` to load weights"));
  }
}

TEST_CASE("TorchRunner: what is wrong at the start leaves an earlier attempt where it is", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  fs::path checkpoints;
  {
    TinyRunner runner(config);
    runner.train();
    checkpoints = runner.workspace().dir() / "checkpoints";
  }
  const auto before = read_file(checkpoints / "latest.pth");
  SECTION("an unknown split") { config.score_split = "vall"; }
  SECTION("a resume from nowhere") { config.resume = (folder.path() / "none.pth").string(); }
  SECTION("batches larger than the data") {
    config.dataloader.splits["train"] = {};
    config.records = 3;
    config.dataloader.drop_last = true;
  }
  {
    TinyRunner runner(config);
    CHECK_THROWS_AS(runner.train(), dl::Error);
  }
  CHECK(read_file(checkpoints / "latest.pth") == before);
  CHECK_FALSE(fs::exists(checkpoints.parent_path() / "attempts"));
}

TEST_CASE("TorchRunner: a stream that stopped anywhere resumes with the same lines of metrics", "[runner]") {
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
      stopped.before_step = [&](TinyRunner& self, std::int64_t done) {
        if (done == stop) {
          self.request_stop();
        }
      };
      CHECK_THROWS_AS(stopped.train(), dl::Stopped);
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

TEST_CASE("TorchRunner: resuming an older checkpoint of the run keeps what came after it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.log_interval = 2;
  config.epochs = 3;
  const auto dir = trained(config);
  const auto whole = outcome_of(dir);
  const auto newest = read_file(dir / "checkpoints" / "latest.pth");
  config.resume = (dir / "checkpoints" / "ckpt-e000001.pth").string();
  {
    TinyRunner runner(config);
    runner.train();
    CHECK(runner.workspace().dir() == dir);
  }
  check_same(whole, outcome_of(dir));
  REQUIRE(fs::exists(dir / "attempts"));
  for (const auto& attempt : fs::directory_iterator(dir / "attempts")) {
    CHECK(read_file(attempt.path() / "checkpoints" / "latest.pth") == newest);
  }
}

TEST_CASE("TorchRunner: a checkpoint that was copied elsewhere is resumed too", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  {
    TinyRunner runner(config);
    runner.train();
    fs::create_directories(folder.path() / "copy");
    fs::copy_file(runner.workspace().dir() / "checkpoints" / "ckpt-e000001.pth", folder.path() / "copy" / "x.pth");
  }
  config.resume = (folder.path() / "copy" / "x.pth").string();
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.state().train.epoch == 2);
  runner.close();
  TinyRunner other(TinyConfig{folder});
  other.load_pretrained((folder.path() / "copy" / "x.pth").string());
}

TEST_CASE("TorchRunner: a stop inside an epoch is no point of the history", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  TinyRunner runner(config);
  runner.before_step = [](TinyRunner& self, std::int64_t done) {
    if (done == 10) {
      self.request_stop();
    }
  };
  CHECK_THROWS_AS(runner.train(), dl::Stopped);
  const auto history = runner.workspace().dir() / "checkpoints" / "ckpt-e000001.pth";
  CHECK(dl::load_file(history).at("state").at("train").at("global_step").integer() == 7);
  CHECK_FALSE(fs::exists(runner.workspace().dir() / "checkpoints" / "ckpt-e000002.pth"));
}

TEST_CASE("TorchRunner: an extended run that is stopped in its last evaluation finishes when resumed", "[runner]") {
  struct Stopping : TinyRunner {
    using TinyRunner::TinyRunner;
    bool stops = false;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      if (stops) {
        request_stop();
      }
      return TinyRunner::evaluate_step(batch);
    }
  };
  const auto train = [](bool stopped) {
    const Folder folder;
    TinyConfig config(folder);
    config.log_interval = 5;
    config.sched.type = "constant";
    config.sched.warmup_steps = 0;
    config.sched.cooldown_steps = 0;
    config.checkpoint.interval = 4;
    config.auto_resume = true;
    fs::path dir;
    for (const std::int64_t steps : {10, 24, 24}) {
      config.steps = steps;
      Stopping runner(config);
      runner.stops = stopped && steps == 24 && dir != fs::path("again");
      try {
        runner.train();
      } catch (const dl::Stopped&) {
        dir = "again";
        continue;
      }
      dir = runner.workspace().dir();
    }
    return outcome_of(dir);
  };
  check_same(train(false), train(true));
}

TEST_CASE("TorchRunner: best.pth is the best epoch, also off the interval", "[runner]") {
  struct Scored : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::StepOutput evaluate_step(dl::Batch& batch) override {
      auto output = TinyRunner::evaluate_step(batch);
      output.loss = torch::full({}, state().train.epoch == 2 ? 0.0 : 1.0 + static_cast<double>(state().train.epoch));
      return output;
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 7;
  config.checkpoint.interval = 5;
  Scored runner(config);
  runner.train();
  const auto best = dl::load_file(runner.workspace().dir() / "checkpoints" / "best.pth");
  CHECK(best.at("state").at("train").at("epoch").integer() == 3);
}

}  // namespace runner_test
