// Going on elsewhere than in the newest checkpoint of the same directory.
#include <danling/checkpoint/file.hpp>
#include <danling/workspace/workspace.hpp>

#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include <unistd.h>

#include <support/terminal.hpp>

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
  const auto dir = trained(config) / "checkpoints";
  for (const auto* name : {"latest.pth", "best.pth", "model.pth", "model.safetensors"}) {
    fs::remove(dir / name);
  }
  config.epochs = 6;
  config.auto_resume = true;
  CHECK(trained(config) / "checkpoints" == dir);
  check_same_checkpoints(whole, dir);
}

TEST_CASE("TorchRunner: resuming an older checkpoint keeps the best and the history before it", "[runner]") {
  const Folder folder;
  auto config = bumpy_config(folder);
  config.optim.maximize = true;
  const auto dir = trained(config) / "checkpoints";
  const auto before = checkpoints_in(dir);
  config.resume = (dir / "ckpt-e000003.pth").string();
  CHECK(trained(config) / "checkpoints" == dir);
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
  CHECK(trained(config) / "checkpoints" == dir);
  const auto after = checkpoints_in(dir);
  CHECK(after.size() == before.size());
  for (const auto& [name, state] : before) {
    CAPTURE(name);
    REQUIRE(after.contains(name));
    CHECK(dl::first_difference(state, after.at(name)) == "");
  }
  CHECK_FALSE(fs::exists(dir.parent_path() / ".resuming"));
}

// A start of a run of bumpy_config with auto_resume, as a program makes it; gives the epochs that it trained.
std::int64_t epochs_trained(const TinyConfig& config, bool with_summary = true) {
  TinyRunner runner(config);
  runner.train();
  if (with_summary) {
    runner.write_summary("finished");
  }
  CHECK(runner.close());
  CHECK(runner.micro_batches % 7 == 0);
  return runner.micro_batches / 7;
}

TinyConfig model_only_config(const Folder& folder) {
  auto config = bumpy_config(folder);
  config.epochs = 3;
  config.checkpoint.last_save_model_only = true;
  config.auto_resume = true;
  return config;
}

fs::path run_in(const Folder& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.path().filename() == "metrics.jsonl") {
      return entry.path().parent_path();
    }
  }
  FAIL("expected a run");
  return {};
}

TEST_CASE("TorchRunner: a finished run whose last save kept the model alone is finished, until more is asked for",
          "[runner]") {
  const Folder folder;
  auto config = model_only_config(folder);
  SECTION("by epochs") { config.epochs = 3; }
  SECTION("by early stopping") {
    config.patience = 1;
    config.epochs = 20;
  }
  const auto first = epochs_trained(config);
  const auto dir = run_in(folder);
  const auto epoch_in = [&](const char* name) { return epoch_of(dir / "checkpoints" / name); };
  REQUIRE((first > 2 && first < 20));
  REQUIRE(dl::load_file(dir / "checkpoints" / "latest.pth").find("state") == nullptr);
  REQUIRE(epoch_in("previous.pth") == first - 1);
  const auto bytes_of = [&] {
    std::map<std::string, std::string> out;
    for (const auto* name : {"checkpoints/latest.pth", "checkpoints/previous.pth", "checkpoints/model.pth",
                             "metrics.jsonl", "results.json", "latest.json", "best.json", "summary.json"}) {
      out[name] = read_file(dir / name);
    }
    return out;
  };
  const auto before = bytes_of();
  for (int start = 0; start < 2; ++start) {
    CHECK(epochs_trained(config) == 0);
    CHECK(bytes_of() == before);
  }
  CHECK_THAT(logs_of(dir), Catch::Matchers::Contains("train: nothing to do, the run is finished"));
  // More epochs begin from the whole state before.
  config.checkpoint.last_save_model_only = false;
  config.patience = std::numeric_limits<double>::infinity();
  config.epochs = first + 2;
  CHECK(epochs_trained(config) == 3);
  CHECK(epoch_in("latest.pth") == first + 2);
}

TEST_CASE("TorchRunner: a run that did not get to its end goes on from a whole state behind a model, again and again",
          "[runner]") {
  const Folder folder;
  auto config = model_only_config(folder);
  CHECK(epochs_trained(config, /*with_summary=*/false) == 3);
  const auto dir = run_in(folder);
  const auto model = dl::load_file(dir / "checkpoints" / "model.pth");
  SECTION("it said nothing") {}
  SECTION("it finished without the best state, which is of the last epoch") {
    std::ofstream(dir / "summary.json") << "{\n    \"status\": \"finished\",\n    \"epoch\": 3,\n    \"details\": {\n"
                                           "        \"unsaved_best\": 2.0\n    }\n}\n";
  }
  SECTION("it was extended, and died before a save") {
    std::ofstream(dir / "summary.json") << "{\n    \"status\": \"finished\",\n    \"epoch\": 2\n}\n";
  }
  for (int start = 0; start < 2; ++start) {
    CHECK(epochs_trained(config, /*with_summary=*/false) == 1);
    CHECK(dl::load_file(dir / "checkpoints" / "latest.pth").find("state") == nullptr);
    CHECK(epoch_of(dir / "checkpoints" / "previous.pth") == 2);
    CHECK(dl::first_difference(model, dl::load_file(dir / "checkpoints" / "model.pth")) == "");
  }
}

TEST_CASE("TorchRunner: a number that someone spoilt in the files of a finished run is named and passed over",
          "[runner]") {
  const Folder folder;
  auto config = model_only_config(folder);
  config.epochs = 1;
  CHECK(epochs_trained(config, /*with_summary=*/false) == 1);
  const auto dir = run_in(folder);
  const auto [key, name, value, told] = GENERATE(table<std::string, std::string, std::string, std::string>({
      {"index", "latest.json", "one,\n", "one"},
      {"index", "latest.json", "99999999999999999999.0,\n", "99999999999999999999.0"},
      {"index", "latest.json", "", ""},
      {"global_step", "metrics.jsonl", "null,", "null"},
  }));
  auto text = read_file(dir / name);
  const auto at = text.rfind("\"" + key + "\":") + key.size() + (name == "latest.json" ? 4 : 3);
  text.replace(at, std::string::npos, value);
  std::ofstream(dir / name) << text;
  config.console = true;
  danling_test::Pipe errors;
  const int before = ::dup(STDERR_FILENO);
  ::dup2(errors.end(), STDERR_FILENO);
  const auto trained = epochs_trained(config);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  CHECK(trained == 0);
  CHECK_THAT(errors.text(),
             Catch::Matchers::Contains("warning: auto_resume: expected in " + (dir / name).string() + " a number of '" +
                                       key + "', got '" + told + "'; goes on without it\n"));
}

TEST_CASE("TorchRunner: what is excluded from loading must be there", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto latest = trained(config) / "checkpoints" / "latest.pth";
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
}

void cut_short(const fs::path& checkpoints) {
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  }
}

TEST_CASE(
    "TorchRunner: auto_resume goes on to the sound checkpoints of an older commit when all newer ones are damaged",
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
  // Where none is sound, the run does not begin anew by itself.
  for (const auto& run : {runner_test::fs::path(dir), older}) {
    cut_short(run / "checkpoints");
  }
  TinyRunner runner(config);
  CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { runner.train(); }),
             Catch::Matchers::StartsWith("[runner.auto_resume] expected a checkpoint to go on from, got none that is "
                                         "sound; move the run's directory away to start afresh: [checkpoint.newest]"));
}

TEST_CASE(
    "TorchRunner: a run that finished in its first save, of the model alone, is finished when it is started again",
    "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.checkpoint.last_save_model_only = true;
  config.auto_resume = true;
  fs::path dir;
  {
    TinyRunner runner(config);
    runner.train();
    runner.write_summary("finished");
    CHECK(runner.close());
    dir = runner.workspace().dir();
  }
  REQUIRE_FALSE(fs::exists(dir / "checkpoints" / "previous.pth"));
  const auto bytes_of = [&] {
    std::map<std::string, std::string> out;
    for (const auto* name : {"checkpoints/latest.pth", "checkpoints/model.pth", "metrics.jsonl", "results.json",
                             "latest.json", "best.json", "summary.json"}) {
      out[name] = read_file(dir / name);
    }
    return out;
  };
  const auto before = bytes_of();
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.is_finished());
  CHECK(runner.micro_batches == 0);
  runner.write_summary("finished");
  CHECK(runner.close());
  CHECK(bytes_of() == before);
  CHECK(runner.workspace().dir() == dir);
  {  // one that died before its summary
    fs::remove(dir / "summary.json");
    TinyRunner again(config);
    again.train();
    again.write_summary("finished");
    CHECK(again.close());
    const auto summary = read_file(dir / "summary.json");
    for (const std::string_view line : {"\"status\": \"finished\"", "\"epoch\": 1,"}) {
      CHECK_THAT(summary, Catch::Matchers::Contains(std::string(line)));
    }
    const auto step = before.at("summary.json").find("\"global_step\": ");
    CHECK_THAT(summary, Catch::Matchers::Contains(before.at("summary.json").substr(step, 17)));
    std::ofstream(dir / "summary.json") << before.at("summary.json");
  }
  CHECK_FALSE(fs::exists(dir / "attempts"));
  const auto weights = dl::load_file(dir / "checkpoints" / "model.pth").at("model");
  CHECK(dl::first_difference(weights, runner.model.state_dict()) == "");
  CHECK_THAT(logs_of(dir), Catch::Matchers::Contains("train: nothing to do, the run is finished"));
  // More epochs have nothing to begin from.
  config.epochs = 2;
  TinyRunner extended(config);
  CHECK_THAT(danling_test::error_of<dl::CheckpointError>([&] { extended.train(); }),
             Catch::Matchers::Contains("it holds the model alone, which is nothing to go on from"));
  CHECK(bytes_of() == before);
}

TEST_CASE("TorchRunner: load_only needs no directory that can be written", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  fs::path latest;
  double loss = 0;
  {
    TinyRunner runner(config);
    runner.train();
    loss = *runner.evaluate().number("val.loss");
    CHECK(runner.close());
    latest = runner.workspace().checkpoint_dir() / "latest.pth";
  }
  const auto in_the_way = folder.path() / "file";
  std::ofstream(in_the_way) << "no folder";
  config.workspace_root = (in_the_way / "runs").string();
  config.resume = latest.string();
  {
    TinyRunner refused(config);
    CHECK_THROWS_AS(refused.train(), dl::ConfigError);
  }
  config.checkpoint.load_only = true;
  config.epochs = 2;
  TinyRunner runner(config);
  CHECK(*runner.evaluate().number("val.loss") == loss);
  runner.train();
  CHECK(runner.state().train.epoch == 2);
  runner.write_summary("finished");
  CHECK(runner.close());
}

TEST_CASE("TorchRunner: with another learning rate and no comparison of configs, the log says whose rate holds",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const auto latest = trained(config) / "checkpoints" / "latest.pth";
  const Folder other;
  config.workspace_root = other.path().string();
  config.optim.lr = 0.01;
  double holds = 0.05;
  std::string text =
      "optim.lr is 0.05 in the checkpoint and 0.01 here; that of the checkpoint holds, with its 'optimizer' (put "
      "'optimizer' into checkpoint.exclude_from_loading for that of the config)";
  config.checkpoint.exclude_from_loading = {"runner"};
  SECTION("the checkpoint's") {}
  SECTION("the config's") {
    config.checkpoint.exclude_from_loading.push_back("optimizer");
    text = "optim.lr is 0.05 in the checkpoint and 0.01 here; that of the config holds";
    holds = 0.01;
  }
  TinyRunner runner(config);
  runner.initialize();
  runner.load_checkpoint(latest);
  CHECK(runner.optimizer->param_groups().front().lr == holds);
  runner.train();  // opens the log
  CHECK(runner.close());
  CHECK_THAT(logs_of(runner.workspace().dir()), Catch::Matchers::Contains(text));
}

TEST_CASE("TorchRunner: a checkpoint of a run's own directory that is loaded before training goes on there",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  Outcome whole;
  {
    const Folder other;
    TinyConfig same = config;
    same.workspace_root = other.path().string();
    TinyRunner runner(same);
    runner.train();
    CHECK(runner.close());
    whole = outcome_of(runner.workspace().dir());
  }
  fs::path dir;
  {
    TinyRunner runner(config);
    runner.before_step = [](TinyRunner& self, std::int64_t done) {
      if (done == 10) {
        self.request_stop();
      }
    };
    CHECK_THROWS_AS(runner.train(), dl::Stopped);
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

}  // namespace runner_test
