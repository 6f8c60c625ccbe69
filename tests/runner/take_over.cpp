// Resuming from another checkpoint than the newest of the same directory.
#include <danling/workspace/workspace.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

// A learning rate that is too high: the best epoch is neither the first nor the last.
TinyConfig bumpy_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 6;
  config.log_interval = 2;
  config.optim.lr = 0.4;
  return config;
}

TEST_CASE("take over: a run that died in its first save has all checkpoints in the end", "[runner]") {
  const Folder folder;
  auto config = bumpy_config(folder);
  config.optim.maximize = true;  // the loss grows: the first epoch is the best
  fs::path whole;
  {
    TinyRunner runner(config);
    const auto& results = runner.train();
    whole = runner.workspace().checkpoint_dir();
    REQUIRE(results.best_index() == 0);
    runner.close();
  }
  // The files of a process that died after ckpt-e000001.pth and before latest.pth and best.pth.
  const Folder other;
  config.workspace_root = other.path().string();
  config.epochs = 1;
  const auto dir = trained(config) / "checkpoints";
  for (const auto* name : {"latest.pth", "best.pth", "model.pth", "model.safetensors"}) {
    fs::remove(dir / name);
  }
  config.epochs = 6;
  config.auto_resume = true;
  CHECK(trained(config) / "checkpoints" == dir);
  check_same_checkpoints(checkpoints_in(whole), checkpoints_in(dir));
}

TEST_CASE("take over: resuming an older checkpoint trains the same again and keeps the newer files in attempts/",
          "[runner]") {
  const Folder folder;
  auto config = bumpy_config(folder);
  config.optim.maximize = true;
  const auto dir = trained(config) / "checkpoints";
  const auto before = checkpoints_in(dir);
  const auto whole = outcome_of(dir.parent_path());
  const auto newest = read_file(dir / "latest.pth");
  config.resume = (dir / "ckpt-e000003.pth").string();
  CHECK(trained(config) / "checkpoints" == dir);
  check_same_checkpoints(before, checkpoints_in(dir));
  check_same(whole, outcome_of(dir.parent_path()));
  REQUIRE(fs::exists(dir.parent_path() / "attempts"));
  for (const auto& attempt : fs::directory_iterator(dir.parent_path() / "attempts")) {
    CHECK(read_file(attempt.path() / "checkpoints" / "latest.pth") == newest);
  }
}

TEST_CASE("take over: if a start dies while it takes over an older checkpoint, the next start repeats it", "[runner]") {
  const Folder folder;
  auto config = bumpy_config(folder);
  fs::path dir;
  std::optional<dl::WorkspaceOptions> options;
  {
    TinyRunner runner(config);
    runner.train();
    dir = runner.workspace().checkpoint_dir();
    options = runner.workspace().options();
    runner.close();
  }
  const auto before = checkpoints_in(dir);
  {
    dl::Workspace dying(*options);
    dying.open(/*resuming=*/false, dir / "ckpt-e000003.pth");
  }
  REQUIRE(fs::is_empty(dir));  // all files are in attempts/
  SECTION("the same command again") { config.resume = (dir / "ckpt-e000003.pth").string(); }
  SECTION("auto_resume") { config.auto_resume = true; }
  SECTION("auto_resume, after a second death") {
    config.auto_resume = true;
    dl::Workspace dying(*options);
    dying.open(/*resuming=*/false, dying.interrupted_source());
  }
  CHECK(trained(config) / "checkpoints" == dir);
  check_same_checkpoints(before, checkpoints_in(dir));
  CHECK_FALSE(fs::exists(dir.parent_path() / ".resuming"));
}

TEST_CASE("take over: a copy of a checkpoint in another directory resumes the run", "[runner]") {
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

void cut_short(const fs::path& checkpoints) {
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  }
}

TEST_CASE("take over: auto_resume takes the checkpoints of an older commit when all newer ones are damaged",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  fs::path dir;
  std::string config_id;
  {
    TinyRunner runner(config);
    runner.train();
    CHECK(runner.close());
    dir = runner.workspace().dir();
    config_id = runner.config_id();
  }
  const auto older = folder.path() / "lin-aaaaaaaa" / ("aaaaaaaa-" + config_id);
  fs::create_directories(older.parent_path());
  fs::copy(dir, older, fs::copy_options::recursive);
  cut_short(dir / "checkpoints");
  config.epochs = 3;
  config.auto_resume = true;
  {
    TinyRunner runner(config);
    runner.train();
    CHECK(runner.micro_batches == 7);
    CHECK(runner.close());
    CHECK(dl::load_file(runner.workspace().checkpoint_dir() / "latest.pth").at("results").list().size() == 3);
  }
  // With damaged checkpoints alone the run does not start again from the beginning.
  for (const auto& run : {dir, older}) {
    cut_short(run / "checkpoints");
  }
  TinyRunner runner(config);
  CHECK_THAT(error_of<dl::CheckpointError>([&] { runner.train(); }),
             StartsWith("[runner.auto_resume] expected an undamaged checkpoint to resume from, got none; move the "
                        "run's directory away to start a new run: [checkpoint.newest]"));
}

TEST_CASE("take over: load_checkpoint with a checkpoint of the run continues in its directory", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  const Outcome whole = run_through(config);
  fs::path dir;
  {
    TinyRunner runner(config);
    train_until(runner, 10);
    dir = runner.workspace().dir();
  }
  {
    TinyRunner runner(config);
    runner.load_checkpoint(dir / "checkpoints" / "latest.pth");
    runner.train();
    CHECK(runner.close());
    CHECK(runner.workspace().dir() == dir);
  }
  check_same(outcome_of(dir), whole);
  CHECK(fs::exists(dir / "checkpoints" / "ckpt-e000001.pth"));
  CHECK_FALSE(fs::exists(dir / "attempts"));
}

TEST_CASE("take over: in a new directory the best keeps its average when the run goes on for longer", "[runner]") {
  const Folder folder, other;
  TinyConfig config(folder);
  config.epochs = 4;
  config.swa.enabled = true;
  config.swa.start = 0.5;
  const auto scores = losses_by_epoch({5, 4, 3, 1, 6});  // epoch 4 of 8 stays the best
  const auto source = trained(config, scores) / "checkpoints";
  config.workspace_root = other.path().string();
  config.resume = (source / "latest.pth").string();
  config.epochs = 8;
  const auto best = dl::load_file(trained(config, scores) / "checkpoints" / "best.pth");
  const auto expected = dl::load_file(source / "best.pth");
  REQUIRE(expected.at("swa").is_map());
  for (const char* part : {"model", "swa", "averages"}) {
    CAPTURE(part);
    CHECK(dl::first_difference(best.at(part), expected.at(part)) == "");
  }
}

TEST_CASE("take over: a start after one that found the directory locked is as the first", "[runner]") {
  struct End : dl::Callback {
    void on_round_end(const dl::RoundEvent& event) override {
      if (event.index == 1) {
        event.runner.end_training("enough");
      }
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  fs::path latest;
  {
    TinyRunner runner(config);
    runner.add(std::make_shared<End>());
    runner.train();
    latest = runner.workspace().checkpoint_dir() / "latest.pth";
  }
  config.resume = latest.string();
  TinyRunner holder(config), runner(config);
  holder.train();
  CHECK(holder.state().train.epoch == 2);
  CHECK_THAT(error_of<dl::StateError>([&] { runner.train(); }), StartsWith("[workspace.lock] expected "));
  CHECK(holder.close());
  runner.train();
  CHECK(runner.state().train.epoch == 2);
}

}  // namespace
}  // namespace runner_test
