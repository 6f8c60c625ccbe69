// Runs that are finished, or whose last save holds the model alone, when they start again.
#include "fixture.hpp"
#include "printed.hpp"

namespace runner_test {
namespace {

/// Starts the run as a program does, or as one that dies before its end: the summary is then that of before. Returns
/// the epochs that it trained.
std::int64_t epochs_trained(const TinyConfig& config, bool with_summary = true) {
  TinyRunner runner(config);
  runner.initialize();
  const fs::path summary = runner.workspace().dir() / "summary.json";
  const std::string before = fs::exists(summary) ? read_file(summary) : std::string();
  runner.train();
  CHECK(runner.close());
  if (!with_summary) {
    fs::remove(summary);
    if (!before.empty()) {
      std::ofstream(summary) << before;
    }
  }
  CHECK(runner.micro_batches % 7 == 0);
  return runner.micro_batches / 7;
}

TinyConfig model_only_config(const Folder& folder) {
  TinyConfig config(folder);
  config.optim.lr = 0.4;  // the loss grows after some epochs
  config.log_interval = 2;
  config.epochs = 3;
  config.checkpoint.last_save_model_only = true;
  config.auto_resume = true;
  return config;
}

fs::path run_in(const Folder& folder) { return find_file(folder, "metrics.jsonl").parent_path(); }

TEST_CASE("finished run: with last_save_model_only it stays finished until it gets more epochs", "[runner]") {
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
  const auto contents = [&] {
    return read_files(dir, {"checkpoints/latest.pth", "checkpoints/previous.pth", "checkpoints/model.pth",
                            "metrics.jsonl", "results.json", "latest.json", "best.json", "summary.json"});
  };
  const auto before = contents();
  for (int start = 0; start < 2; ++start) {
    CHECK(epochs_trained(config) == 0);
    CHECK(contents() == before);
  }
  CHECK_THAT(logs_of(dir), ContainsSubstring("train: nothing to do, the run is finished"));
  // More epochs start from the last whole state.
  config.checkpoint.last_save_model_only = false;
  config.patience = std::numeric_limits<double>::infinity();
  config.epochs = first + 2;
  CHECK(epochs_trained(config) == 3);
  CHECK(epoch_in("latest.pth") == first + 2);
}

TEST_CASE("finished run: with last_save_model_only an unfinished run resumes from previous.pth, at each start",
          "[runner]") {
  const Folder folder;
  auto config = model_only_config(folder);
  CHECK(epochs_trained(config, /*with_summary=*/false) == 3);
  const auto dir = run_in(folder);
  const auto model = dl::load_file(dir / "checkpoints" / "model.pth");
  SECTION("without a summary") {}
  SECTION("the best state, of the last epoch, was not saved") {
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

TEST_CASE("finished run: an unreadable number in its files is a warning that names it", "[runner]") {
  const Folder folder;
  auto config = model_only_config(folder);
  config.epochs = 1;
  CHECK(epochs_trained(config, /*with_summary=*/false) == 1);
  const auto dir = run_in(folder);
  const auto [key, name, value, got] = GENERATE(table<std::string, std::string, std::string, std::string>({
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
  std::int64_t epochs = -1;
  const auto text_printed = printed_by([&] { epochs = epochs_trained(config); });
  CHECK(epochs == 0);
  CHECK_THAT(text_printed, ContainsSubstring("warning: auto_resume: expected in " + (dir / name).string() +
                                             " a number of '" + key + "', got '" + got + "'; ignores it\n"));
}

TEST_CASE("finished run: with last_save_model_only and one epoch it stays finished, and cannot get more epochs",
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
  const auto contents = [&] {
    return read_files(dir, {"checkpoints/latest.pth", "checkpoints/model.pth", "metrics.jsonl", "results.json",
                            "latest.json", "best.json", "summary.json"});
  };
  const auto before = contents();
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.is_finished());
  CHECK(runner.micro_batches == 0);
  runner.write_summary("finished");
  CHECK(runner.close());
  CHECK(contents() == before);
  CHECK(runner.workspace().dir() == dir);
  {  // as if the process died before its summary
    fs::remove(dir / "summary.json");
    TinyRunner again(config);
    again.train();
    again.write_summary("finished");
    CHECK(again.close());
    const auto summary = read_file(dir / "summary.json");
    for (const std::string_view line : {"\"status\": \"finished\"", "\"epoch\": 1,"}) {
      CHECK_THAT(summary, ContainsSubstring(std::string(line)));
    }
    const auto step = before.at("summary.json").find("\"global_step\": ");
    CHECK_THAT(summary, ContainsSubstring(before.at("summary.json").substr(step, 17)));
    std::ofstream(dir / "summary.json") << before.at("summary.json");
  }
  CHECK_FALSE(fs::exists(dir / "attempts"));
  const auto weights = dl::load_file(dir / "checkpoints" / "model.pth").at("model");
  CHECK(dl::first_difference(weights, runner.model.state_dict()) == "");
  CHECK_THAT(logs_of(dir), ContainsSubstring("train: nothing to do, the run is finished"));
  // Without a whole state there are no more epochs.
  config.epochs = 2;
  TinyRunner extended(config);
  CHECK_THAT(error_of<dl::CheckpointError>([&] { extended.train(); }),
             ContainsSubstring("contains only model weights; cannot resume"));
  CHECK(contents() == before);
}

TEST_CASE("finished run: if the process died before model.pth, the next start saves it", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  SECTION("epochs") {}
  SECTION("steps") {
    config.epochs.reset();
    config.steps = 9;
  }
  const auto model = trained(config) / "checkpoints" / "model.pth";
  const auto bytes = read_file(model);
  fs::rename(model, model.parent_path() / ".model.pth.tmp-1-0");
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(read_file(model) == bytes);
  CHECK_FALSE(fs::exists(model.parent_path() / ".model.pth.tmp-1-0"));
}

}  // namespace
}  // namespace runner_test
