// Going on elsewhere than in the newest checkpoint of the same directory.
#include <danling/checkpoint/file.hpp>
#include <danling/workspace/workspace.hpp>

#include <map>
#include <optional>

#include "fixture.hpp"

namespace runner_test {

std::map<std::string, dl::State> checkpoints_in(const fs::path& dir) {
  std::map<std::string, dl::State> out;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".pth" && entry.path().stem() != "previous") {
      dl::State state = dl::load_file(entry.path());
      state.map().erase("runner");  // holds the folder
      out[entry.path().filename().string()] = std::move(state);
    }
  }
  return out;
}

void check_same_checkpoints(const fs::path& a, const fs::path& b) {
  const auto left = checkpoints_in(a);
  const auto right = checkpoints_in(b);
  for (const auto& [name, state] : left) {
    CAPTURE(name);
    REQUIRE(right.contains(name));
    CHECK(dl::first_difference(state, right.at(name)) == "");
  }
  CHECK(left.size() == right.size());
}

// The best epoch is neither the first nor the last: a learning rate that is too high spoils what was learnt.
TinyConfig bumpy_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 6;
  config.log_interval = 2;
  config.optim.lr = 0.4;
  return config;
}

TEST_CASE("TorchRunner: a run that died in its first save has every name in the end", "[runner]") {
  const Folder folder;
  auto config = bumpy_config(folder);
  // By a score that is better the higher the loss is, the first epoch is the best.
  config.optim.maximize = true;
  fs::path whole;
  {
    TinyRunner runner(config);
    const auto& results = runner.train();
    whole = runner.workspace().checkpoint_dir();
    REQUIRE(results.best_index() == 0);
    runner.close();
  }
  // What is on disk when the process dies between the history's name and those of `best` and `latest`.
  const Folder other;
  config.workspace_root = other.path().string();
  config.epochs = 1;
  fs::path dir;
  {
    TinyRunner runner(config);
    runner.train();
    dir = runner.workspace().checkpoint_dir();
    runner.close();
  }
  for (const auto* name : {"latest.pth", "best.pth", "model.pth", "model.safetensors"}) {
    fs::remove(dir / name);
  }
  config.epochs = 6;
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  runner.close();
  check_same_checkpoints(whole, dir);
}

TEST_CASE("TorchRunner: resuming an older checkpoint keeps the best and the history before it", "[runner]") {
  const Folder folder;
  auto config = bumpy_config(folder);
  config.optim.maximize = true;
  const auto train = [](const TinyConfig& with) {
    TinyRunner runner(with);
    runner.train();
    runner.close();
    return runner.workspace().checkpoint_dir();
  };
  const auto dir = train(config);
  const auto before = checkpoints_in(dir);
  config.resume = (dir / "ckpt-e000003.pth").string();
  CHECK(train(config) == dir);
  const auto after = checkpoints_in(dir);
  REQUIRE(after.size() == before.size());
  for (const auto& [name, state] : before) {
    CAPTURE(name);
    REQUIRE(after.contains(name));
    CHECK(dl::first_difference(state, after.at(name)) == "");
  }
}

TEST_CASE("TorchRunner: a start that died while it took over an older checkpoint is made good by the next one",
          "[runner]") {
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
  REQUIRE(fs::is_empty(dir));  // all of it lies in attempts/
  SECTION("the same command again") { config.resume = (dir / "ckpt-e000003.pth").string(); }
  SECTION("auto_resume") { config.auto_resume = true; }
  SECTION("auto_resume, after a second death") {
    config.auto_resume = true;
    dl::Workspace dying(*options);
    dying.open(/*resuming=*/false, dying.interrupted_source());
  }
  TinyRunner runner(config);
  runner.train();
  runner.close();
  const auto after = checkpoints_in(dir);
  CHECK(after.size() == before.size());
  for (const auto& [name, state] : before) {
    CAPTURE(name);
    REQUIRE(after.contains(name));
    CHECK(dl::first_difference(state, after.at(name)) == "");
  }
  CHECK_FALSE(fs::exists(dir.parent_path() / ".resuming"));
}

TEST_CASE("TorchRunner: a run whose last save kept the model alone goes on from a whole state, again and again",
          "[runner]") {
  const Folder folder;
  auto config = bumpy_config(folder);
  config.epochs = 3;
  config.checkpoint.last_save_model_only = true;
  config.auto_resume = true;
  fs::path dir;
  dl::State model;
  for (int start = 0; start < 4; ++start) {
    CAPTURE(start);
    TinyRunner runner(config);
    runner.train();
    dir = runner.workspace().checkpoint_dir();
    runner.close();
    CHECK(dl::load_file(dir / "latest.pth").find("state") == nullptr);
    CHECK(dl::load_file(dir / "previous.pth").at("state").at("train").at("epoch").integer() == 2);
    if (start == 0) {
      model = dl::load_file(dir / "model.pth");
    }
    CHECK(dl::first_difference(model, dl::load_file(dir / "model.pth")) == "");
  }
  config.epochs = 5;
  config.checkpoint.last_save_model_only = false;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.state().train.epoch == 5);
}

TEST_CASE("TorchRunner: what is excluded from loading must be there", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  fs::path latest;
  {
    TinyRunner runner(config);
    runner.train();
    latest = runner.workspace().checkpoint_dir() / "latest.pth";
    runner.close();
  }
  const Folder other;
  config.workspace_root = other.path().string();
  config.resume = latest.string();
  const auto refusal = [&](const std::string& item) {
    config.checkpoint.exclude_from_loading = {item};
    TinyRunner runner(config);
    return danling_test::error_of<dl::ConfigError>([&] { runner.initialize(); });
  };
  CHECK(refusal("optimiser") ==
        "[runner.load_checkpoint] expected in checkpoint.exclude_from_loading what the checkpoint holds, got "
        "'optimiser'; did you mean 'optimizer'?; `danling ckpt show` lists what a checkpoint holds");
  CHECK_THAT(refusal("dataloaders.a"), Catch::Matchers::Contains("got 'dataloaders.a'"));
  // Names of parameters have dots of their own; a model that lacks one is then no whole model.
  config.checkpoint.exclude_from_loading = {"model.0.weight"};
  TinyRunner runner(config);
  CHECK_THAT(danling_test::error_of<dl::Error>([&] { runner.initialize(); }), Catch::Matchers::Contains("0.weight"));
}

}  // namespace runner_test
