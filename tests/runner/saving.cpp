// Saving while training: where in a step, on which thread, and what a failed save does.
#include <sys/resource.h>

#include <csignal>
#include <map>
#include <stdexcept>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/manager.hpp>

#include "fixture.hpp"

namespace runner_test {

// As long as it lives, no file can grow beyond `bytes`: the kernel's answer is EFBIG, as ENOSPC of a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

// Large enough that checkpoints break a limit under which logs and results can still be written.
TinyConfig wide_config(const Folder& folder) {
  TinyConfig config(folder);
  config.hidden = 20000;
  config.epochs = 4;
  config.log_interval = 1000;
  return config;
}

constexpr rlim_t kTooSmall = 200000;

std::string log_of(const fs::path& dir) {
  std::string out;
  for (const auto& entry : fs::directory_iterator(dir / "logs")) {
    out += read_file(entry.path());
  }
  return out;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++out;
  }
  return out;
}

TEST_CASE("TorchRunner: synchronous and asynchronous saves leave the same checkpoints", "[runner]") {
  std::vector<std::map<std::string, dl::State>> seen;
  for (const char* mode : {"disabled", "async", "async_with_pinned_mem"}) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 5;
    config.checkpoint.async_mode = mode;
    config.checkpoint.keep_latest_k = 2;
    TinyRunner runner(config);
    runner.train();
    const auto dir = runner.workspace().dir() / "checkpoints";
    auto& files = seen.emplace_back();  // train() has waited for the disk: no close() needed
    for (const auto& entry : fs::directory_iterator(dir)) {
      if (entry.path().extension() != ".pth") {
        continue;
      }
      dl::State state = dl::load_file(entry.path());
      state.map().erase("runner");  // holds the mode and the folder
      files[entry.path().filename().string()] = std::move(state);
    }
  }
  CHECK(seen[0].size() == 6);
  for (const auto& [name, state] : seen[0]) {
    CAPTURE(name);
    REQUIRE(seen[1].contains(name));
    REQUIRE(seen[2].contains(name));
    CHECK(dl::first_difference(state, seen[1].at(name)) == "");
    CHECK(dl::first_difference(state, seen[2].at(name)) == "");
  }
}

TEST_CASE("TorchRunner: a save asked for inside a step or a window is taken where the window ends, and resumes exactly",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.accum_steps = 3;
  config.log_interval = 2;
  dl::State whole;
  {
    TinyRunner runner(config);
    runner.before_step = [](TinyRunner& self, std::int64_t done) {
      if (done == 8) {  // the second micro-batch of the first window of the second epoch (7 batches an epoch)
        self.save_checkpoint("inside", /*save_best=*/false, /*last_step=*/false, /*force=*/true);
      }
    };
    runner.train();
    CHECK(runner.close());
    whole = dl::load_file(runner.workspace().dir() / "checkpoints" / "latest.pth");
    const auto inside = dl::load_file(runner.workspace().dir() / "checkpoints" / "inside.pth");
    CHECK(inside.at("state").at("train").at("micro_step").integer() % 3 == 0);
    CHECK(inside.at("state").at("train").at("global_step").integer() == 4);
    CHECK(inside.at("loop").at("iteration").integer() == 3);
    config.resume = (runner.workspace().dir() / "checkpoints" / "inside.pth").string();
  }
  const Folder other;
  config.workspace_root = other.path().string();
  TinyRunner resumed(config);
  resumed.train();
  dl::State again = dl::load_file(resumed.workspace().dir() / "checkpoints" / "latest.pth");
  whole.map().erase("runner");
  again.map().erase("runner");
  CHECK(dl::first_difference(whole, again) == "");
}

TEST_CASE("TorchRunner: failed saves are told once and counted, training goes on, and the next ones are made good",
          "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  SECTION("asynchronous") {}
  SECTION("synchronous") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 7) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(kTooSmall);  // after the first epoch
    } else if (done == 27) {
      full.reset();  // before the last save
    }
  };
  runner.train();
  const auto dir = runner.workspace().dir();
  const auto health = runner.checkpoint_manager().checkpoint_health();
  CHECK(health.error_count == 2);
  CHECK(health.failing.empty());
  CHECK(health.first_error == "[checkpoint.write] expected to write '" + (dir / "checkpoints/latest.pth").string() +
                                  "', got errno 27 (File too large)");
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto log = log_of(dir);
  CHECK(count(log, health.first_error + "; training goes on, earlier checkpoints are whole") == 1);
  CHECK(count(log, "checkpoint: saves succeed again; 2 failed so far") == 1);
  CHECK_THAT(read_file(dir / "summary.json"), Catch::Matchers::Contains("\"checkpoint_errors\": 2"));
  CHECK(dl::load_file(dir / "checkpoints" / "latest.pth").at("state").at("train").at("epoch").integer() == 4);
  CHECK(dl::load_file(dir / "checkpoints" / "previous.pth").at("state").at("train").at("epoch").integer() == 1);
}

TEST_CASE("TorchRunner: with checkpoint.on_error stop the first failed save ends training", "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  config.checkpoint.on_error = "stop";
  SECTION("asynchronous: at a later step boundary") {}
  SECTION("synchronous: at the save") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 7) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(kTooSmall);
    } else if (done == 15) {
      while (config.checkpoint.async_mode != "disabled" && !self.checkpoint_manager().has_failure()) {
        usleep(1000);
      }
    }
  };
  CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.train(); }),
             Catch::Matchers::EndsWith("got errno 27 (File too large)"));
  full.reset();
  CHECK(runner.state().train.epoch == 2);
  CHECK(dl::load_file(runner.workspace().dir() / "checkpoints" / "latest.pth")
            .at("state")
            .at("train")
            .at("epoch")
            .integer() == 1);
}

TEST_CASE("TorchRunner: a last save that fails is an error, whatever on_error says", "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  SECTION("asynchronous") {}
  SECTION("synchronous") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 27) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(kTooSmall);
    }
  };
  CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.train(); }),
             Catch::Matchers::EndsWith("got errno 27 (File too large)"));
  full.reset();
}

TEST_CASE("TorchRunner: a last save that fails is an error also where the model, which is smaller, is saved",
          "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 27) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(1200000);  // the whole state takes 1.9 MB, the model 0.65 MB
    }
  };
  CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.train(); }),
             Catch::Matchers::EndsWith("got errno 27 (File too large)"));
  full.reset();
  const auto dir = runner.workspace().checkpoint_dir();
  CHECK(fs::exists(dir / "model.pth"));
  CHECK(dl::load_file(dir / "latest.pth").at("state").at("train").at("epoch").integer() == 3);
  CHECK(runner.checkpoint_manager().checkpoint_health().failing.contains("latest"));
}

TEST_CASE("TorchRunner: an error of the program's own state_dict is told as it is", "[runner]") {
  struct Unsavable : TinyRunner {
    using TinyRunner::TinyRunner;
    dl::State state_dict() override { throw std::runtime_error("cannot serialise my replay buffer"); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  Unsavable runner(config);
  CHECK(danling_test::error_of<std::runtime_error>([&] { runner.train(); }) == "cannot serialise my replay buffer");
}

TEST_CASE("TorchRunner: a save after a step that threw says that it may not resume exactly", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.accum_steps = 3;
  TinyRunner runner(config);
  runner.before_step = [](TinyRunner&, std::int64_t done) {
    if (done == 8) {
      throw std::runtime_error("a bad batch");
    }
  };
  CHECK_THROWS_AS(runner.train(), std::runtime_error);
  std::size_t warnings = 1;
  SECTION("as it is") {}
  SECTION("not after a checkpoint was loaded") {
    runner.load_checkpoint(runner.workspace().checkpoint_dir() / "latest.pth");
    warnings = 0;
  }
  runner.save_checkpoint("rescue", false, false, true);
  CHECK(runner.close());
  CHECK(count(log_of(runner.workspace().dir()), "a step threw before this save") == warnings);
}

// Validation losses by epoch; others after the run went back.
class GoingBack : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  bool back = false;

 protected:
  dl::StepOutput evaluate_step(dl::Batch& batch) override {
    auto out = TinyRunner::evaluate_step(batch);
    out.loss = torch::full({}, state().train.epoch < 2 ? 5 - static_cast<double>(state().train.epoch) : back ? 6 : 1);
    return out;
  }
};

TEST_CASE("TorchRunner: a run that goes back has the best of the way that it took", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 5;
  config.accum_steps = 1;
  GoingBack runner(config);
  std::int64_t steps = 0;
  runner.before_step = [&](TinyRunner& self, std::int64_t) {
    if (self.state().train.epoch == 4 && ++steps == 1) {
      throw std::runtime_error("go back");
    }
  };
  CHECK_THROWS_AS(runner.train(), std::runtime_error);
  const auto dir = runner.workspace().dir();
  const auto best = [&] { return dl::load_file(dir / "checkpoints" / "best.pth").at("results").list().size(); };
  runner.checkpoint_manager().wait(std::nullopt);
  CHECK(best() == 4);
  runner.back = true;
  SECTION("to a file") {
    runner.load_checkpoint(dir / "checkpoints" / "ckpt-e000002.pth");
    CHECK(best() == 2);
  }
  SECTION("to a state") { runner.load_checkpoint(dl::load_file(dir / "checkpoints" / "ckpt-e000002.pth")); }
  runner.train();
  CHECK(runner.close());
  CHECK(best() == 2);
  CHECK_THAT(read_file(dir / "best.json"), Catch::Matchers::Contains("\"index\": 1.0"));
}

TEST_CASE("TorchRunner: a stop whose save fails does not claim that the run is saved", "[runner]") {
  const Folder folder;
  auto config = wide_config(folder);
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 10) {
      self.checkpoint_manager().wait(std::nullopt);
      full.emplace(kTooSmall);
      self.request_stop();
    }
  };
  CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.train(); }),
             Catch::Matchers::EndsWith("got errno 27 (File too large)"));
  full.reset();
  CHECK(dl::load_file(runner.workspace().dir() / "checkpoints" / "latest.pth")
            .at("state")
            .at("train")
            .at("epoch")
            .integer() == 1);
}

TEST_CASE("TorchRunner: a finished run whose process died before it saved the model does so at the next start",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  SECTION("epochs") {}
  SECTION("steps") {
    config.epochs.reset();
    config.steps = 9;
  }
  fs::path model;
  {
    TinyRunner runner(config);
    runner.train();
    model = runner.workspace().checkpoint_dir() / "model.pth";
  }
  const auto bytes = read_file(model);
  fs::rename(model, model.parent_path() / ".model.pth.tmp-1-0");
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(read_file(model) == bytes);
  CHECK_FALSE(fs::exists(model.parent_path() / ".model.pth.tmp-1-0"));
}

// A file of results without the time at which its attempt began.
std::string results_of(const fs::path& file) {
  std::istringstream in(read_file(file));
  std::string out;
  for (std::string line; std::getline(in, line);) {
    out += line.find("\"timestamp\"") == std::string::npos ? line + "\n" : std::string();
  }
  return out;
}

TEST_CASE("TorchRunner: metrics and results that a full disk refuses are told once, and made good when there is room",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 60;
  config.log_interval = 1;
  config.checkpoint.keep_latest_k = 1;
  const Folder other;
  TinyConfig same = config;
  same.workspace_root = other.path().string();
  TinyRunner undisturbed(same);
  const std::int64_t best = undisturbed.train().best_index();
  CHECK(undisturbed.close());
  // The disk is full when the best epoch ends, so that best.json is refused too.
  const std::int64_t from = (best - 3) * 7;
  const std::int64_t until = (best + 3) * 7;
  REQUIRE(best > 10);
  REQUIRE(best < 55);
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == from) {
      self.checkpoint_manager().wait(std::nullopt);
      fs::resize_file(self.workspace().log_file(), 0);  // it has room, so that what it says can be read
      full.emplace(fs::file_size(self.workspace().dir() / "results.json"));
    } else if (done == until) {
      full.reset();
    }
  };
  runner.train();
  CHECK(runner.close());
  const auto dir = runner.workspace().dir();
  const auto whole = undisturbed.workspace().dir();
  CHECK(metrics_of(dir) == metrics_of(whole));
  for (const auto* name : {"results.json", "latest.json", "best.json"}) {
    CHECK(results_of(dir / name) == results_of(whole / name));
  }
  const auto log = log_of(dir);
  CHECK(count(log, "[metrics_log.append] expected to write " + (dir / "metrics.jsonl").string() +
                       ", got 'File too large'; training goes on, lines of metrics are kept until there is room") == 1);
  CHECK(count(log, "[metrics_log") == 1);
  CHECK(count(log, "metrics: all lines are written again") == 1);
  CHECK(count(log, "[workspace.write] expected to write " + (dir / "results.json").string() +
                       ", got 'File too large'; training goes on, the results are written with the next ones") == 1);
  CHECK(count(log, "[workspace.write") == 1);
  CHECK(count(log, "results: all files are written again") == 1);
  const auto state = dl::load_file(dir / "checkpoints" / "latest.pth");
  CHECK(state.at("metrics_lines").integer() ==
        dl::load_file(whole / "checkpoints" / "latest.pth").at("metrics_lines").integer());
}

TEST_CASE("TorchRunner: a checkpoint counts the lines of metrics that wait, and holds them", "[runner]") {
  std::vector<std::int64_t> counted;
  for (const bool disturbed : {false, true}) {
    const Folder folder;
    TinyConfig config(folder);
    config.epochs = 2;
    config.log_interval = 1;
    TinyRunner runner(config);
    std::optional<FileSizeLimit> full;
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      if (done == 2 && disturbed) {
        full.emplace(1);
      } else if (done == 5) {
        counted.push_back(self.state_dict().at("metrics_lines").integer());
        if (disturbed) {
          const auto written = count(read_file(self.workspace().metrics_file()), "\n");
          CHECK(written < 3);
          const auto state = self.state_dict();
          CHECK(static_cast<std::int64_t>(written + count(state.at("metrics_waiting").string(), "\n")) ==
                state.at("metrics_lines").integer());
        }
        full.reset();
        CHECK(self.state_dict().find("metrics_waiting") == nullptr);
        counted.push_back(self.state_dict().at("metrics_lines").integer());
        counted.push_back(static_cast<std::int64_t>(count(read_file(self.workspace().metrics_file()), "\n")));
      }
    };
    runner.train();
  }
  CHECK(counted[0] >= 4);
  CHECK(counted == std::vector<std::int64_t>(6, counted[0]));
}

TEST_CASE("TorchRunner: with checkpoint.on_error stop a line of metrics that is refused ends training", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.log_interval = 1;
  config.checkpoint.on_error = "stop";
  TinyRunner runner(config);
  std::optional<FileSizeLimit> full;
  runner.before_step = [&](TinyRunner&, std::int64_t done) {
    if (done == 2) {
      full.emplace(1);
    }
  };
  const auto text = danling_test::error_of<dl::Error>([&] { runner.train(); });
  full.reset();
  CHECK(text == "[metrics_log.append] expected to write " + runner.workspace().metrics_file().string() +
                    ", got 'File too large'");
  CHECK(runner.micro_batches == 3);
}

TEST_CASE("TorchRunner: results that cannot be written at the end are an error, and the next start writes them",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  SECTION("epochs") {}
  SECTION("steps") {
    config.epochs.reset();
    config.steps = 21;
  }
  fs::path results;
  std::string best;
  {
    TinyRunner runner(config);
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      if (done == 20) {
        results = self.workspace().dir() / "results.json";
        fs::remove(results);
        fs::create_directories(results / "in the way");
      }
    };
    const auto text = danling_test::error_of<dl::Error>([&] { runner.train(); });
    CHECK(text == "[workspace.write] expected to write " + results.string() + ", got 'Is a directory'");
    CHECK(runner.results().rows().back().index == (config.steps ? 21 : 2));
    best = std::to_string(runner.results().best_index());
  }
  CHECK(fs::exists(results.parent_path() / "checkpoints" / "latest.pth"));
  fs::remove_all(results);
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.micro_batches == 0);
  CHECK_THAT(read_file(results), Catch::Matchers::Contains(config.steps ? "\"21\": {" : "\"2\": {"));
  CHECK_THAT(read_file(results.parent_path() / "best.json"), Catch::Matchers::Contains("\"index\": " + best));
}

TEST_CASE("TorchRunner: a run whose directory is removed under it says so, and has its files in the end", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.checkpoint.on_error = "stop";  // no save fails
  fs::path dir;
  bool whole = true;
  SECTION("the checkpoints") { whole = false; }
  SECTION("all of it") {}
  SECTION("all of it, synchronous saves") { config.checkpoint.async_mode = "disabled"; }
  TinyRunner runner(config);
  std::string log_before;
  std::string refusal;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    dir = self.workspace().dir();
    if (done == 16) {  // in the third epoch
      self.checkpoint_manager().wait(std::nullopt);
      self.logger().flush();
      log_before = log_of(dir);
      fs::remove_all(whole ? dir : dir / "checkpoints");
    } else if (done == 25) {
      dl::Workspace second(self.workspace().options());
      refusal = danling_test::error_of<dl::StateError>([&] { second.open(/*resuming=*/true); });
    }
  };
  runner.train();
  CHECK_THAT(refusal, Catch::Matchers::StartsWith("[workspace.lock] expected " + dir.string() + " to be free"));
  const auto health = runner.checkpoint_manager().checkpoint_health();
  CHECK(health.error_count == 0);
  CHECK(health.failing.empty());
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto log = log_of(dir);
  CHECK(log.substr(0, log_before.size()) == log_before);
  CHECK(count(log, "it was removed") == 1);
  CHECK(count(log, whole ? "workspace: expected '" + dir.string() +
                               "', got none: it was removed, and the earlier checkpoints in it are gone; made anew, "
                               "training goes on\n"
                         : "[checkpoint.write] expected the directory '" + (dir / "checkpoints").string() +
                               "', got none: it was removed, and the earlier checkpoints in it are gone; made anew; "
                               "training goes on\n") == 1);
  CHECK_THAT(log, Catch::Matchers::Contains("epoch 4/4"));
  CHECK_THAT(read_file(dir / "metadata" / "git.yaml"), Catch::Matchers::Contains(runner.workspace().timestamp()));
  CHECK(fs::exists(dir / "metadata" / "config.full.yaml"));
  CHECK_THAT(read_file(dir / "summary.json"), !Catch::Matchers::Contains("checkpoint_errors"));
  for (const auto* name : {"ckpt-e000003.pth", "ckpt-e000004.pth", "latest.pth", "previous.pth", "model.pth"}) {
    CHECK(fs::exists(dir / "checkpoints" / name));
  }
  CHECK(metrics_of(dir) == run_through(config).metrics);
  CHECK(fs::exists(dir / "results.json"));
}

TEST_CASE("TorchRunner: where another run took the place of a removed directory, the first ends, and leaves it alone",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  auto other_config = config;
  other_config.epochs = 1;
  std::unique_ptr<TinyRunner> other;
  fs::path dir;
  TinyRunner runner(config);
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 16) {  // in the third epoch
      dir = self.workspace().dir();
      self.checkpoint_manager().wait(std::nullopt);
      fs::remove_all(dir);
      other = std::make_unique<TinyRunner>(other_config);
      other->train();
      other->write_summary("finished");
    }
  };
  const auto error = danling_test::error_of<dl::StateError>([&] { runner.train(); });
  CHECK(error.substr(0, error.find(" to be free, got process ")) ==
        "[workspace.reopen] expected '" + dir.string() +
            "' to stay as it was while the run goes on, got it or its lock removed, and then: [workspace.lock] "
            "expected " +
            dir.string());
  runner.write_summary("crashed", error, 0, 1);
  CHECK(runner.close());
  CHECK(other->close());
  CHECK_THAT(read_file(dir / "summary.json"), Catch::Matchers::Contains("\"status\": \"finished\""));
  CHECK(dl::load_file(dir / "checkpoints" / "latest.pth").at("state").at("train").at("epoch").integer() == 1);
  CHECK(metrics_of(dir) == run_through(other_config).metrics);
}

TEST_CASE("TorchRunner: a seed checkpoint starts other runs from the same state", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.save_seed_checkpoint();
  const auto seed = runner.workspace().dir() / "checkpoints" / "seed.pth";
  runner.settle_checkpoints();
  CHECK(dl::load_file(seed).at("state").at("train").at("global_step").integer() == 0);
  runner.train();
  const auto trained = runner.model.state_dict();
  CHECK(runner.close());

  const Folder other;
  config.workspace_root = other.path().string();
  config.resume = seed.string();
  TinyRunner again(config);
  again.train();
  CHECK(dl::first_difference(trained, again.model.state_dict()) == "");
  again.save_seed_checkpoint("late");
  CHECK(again.close());
  CHECK_THAT(log_of(again.workspace().dir()),
             Catch::Matchers::Contains(
                 "runner.save_seed_checkpoint: expected a run that has not advanced, got epoch 1, step 7"));
}

TEST_CASE("TorchRunner: the history keeps the checkpoints with the best scores", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 8;
  config.checkpoint.keep_best_k = 2;
  TinyRunner runner(config);
  const auto scores = runner.train().scores();
  CHECK(runner.close());
  // By loss: lower is better, and the newest of all stays as well.
  std::vector<std::pair<double, std::int64_t>> order;
  for (const auto& [epoch, loss] : scores) {
    order.emplace_back(loss, epoch);
  }
  std::sort(order.begin(), order.end());
  std::set<std::string> expected = {"ckpt-e000008"};
  for (int i = 0; i < 2; ++i) {
    expected.insert("ckpt-e00000" + std::to_string(order[static_cast<std::size_t>(i)].second + 1));
  }
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(runner.workspace().dir() / "checkpoints")) {
    if (entry.path().stem().string().starts_with("ckpt-")) {
      found.insert(entry.path().stem().string());
    }
  }
  CHECK(found == expected);
}

}  // namespace runner_test
