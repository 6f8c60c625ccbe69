// Numbers of epochs and steps in files and on the console, and files of older versions.
#include <nlohmann/json.hpp>

#include "fixture.hpp"
#include "runner/earlier_run.hpp"

namespace runner_test {

nlohmann::ordered_json json_in(const fs::path& path) { return nlohmann::ordered_json::parse(read_file(path)); }

std::vector<std::string> keys_of(const nlohmann::ordered_json& map) {
  std::vector<std::string> out;
  for (const auto& [key, value] : map.items()) {
    out.push_back(key);
  }
  return out;
}

TEST_CASE("TorchRunner: files, console and checkpoints have the same numbers of epochs", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  TinyRunner runner(config);
  const auto& results = runner.train();
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto dir = runner.workspace().dir();
  CHECK(fs::exists(dir / "checkpoints" / "ckpt-e000003.pth"));
  CHECK_THAT(logs_of(dir), ContainsSubstring("epoch 3/3"));
  CHECK(keys_of(json_in(dir / "results.json")["results"]) == std::vector<std::string>{"1", "2", "3"});
  CHECK(json_in(dir / "latest.json")["index"].dump() == "3");
  CHECK(json_in(dir / "best.json")["index"].dump() == std::to_string(results.best_index() + 1));
  CHECK(json_in(dir / "summary.json")["details"]["best_index"].dump() == std::to_string(results.best_index() + 1));
  CHECK(json_in(dir / "summary.json")["epoch"].dump() == "3");
  // In memory and in checkpoints they count from 0, as DanLing does.
  CHECK(results.latest()->index == 2);
  CHECK(dl::load_file(dir / "checkpoints" / "latest.pth").at("results").list()[2].at("index").integer() == 2);
}

TEST_CASE("TorchRunner: by steps the index of a result is its step", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.evaluate_interval = 3;
  const auto dir = trained(config);
  CHECK(keys_of(json_in(dir / "results.json")["results"]) == std::vector<std::string>{"3", "6"});
  CHECK(json_in(dir / "latest.json")["index"].dump() == "6");
}

TEST_CASE("EarlierRun: reads files that count epochs from 0, as \"27.0\", and from 1", "[runner]") {
  const Folder folder;
  dl::Logger logger({.console = false});
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder.path() / name) << text; };
  const dl::detail::EarlierRun run(folder.path(), logger);
  const auto [latest, best] = GENERATE(table<std::string, std::string>({{"4.0", "2.0"}, {"5", "3"}}));
  write("latest.json", "{\n    \"index\": " + latest + "\n}\n");
  write("best.json", "{\n    \"index\": " + best + "\n}\n");
  const double never = std::numeric_limits<double>::infinity();
  CHECK(run.is_done({.epochs = 5, .patience = never}));
  CHECK_FALSE(run.is_done({.epochs = 6, .patience = never}));
  CHECK(run.is_done({.epochs = 6, .patience = 2}));
  CHECK_FALSE(run.is_done({.epochs = 6, .patience = 3}));
  write("summary.json",
        "{\n    \"status\": \"finished\",\n    \"epoch\": 5,\n    \"details\": {\n        \"unsaved_best\": " + latest +
            "\n    }\n}\n");
  CHECK_FALSE(run.is_complete({.epochs = 5, .patience = never}));  // the last epoch can still be the best
  write("summary.json",
        "{\n    \"status\": \"finished\",\n    \"epoch\": 5,\n    \"details\": {\n        \"unsaved_best\": " + best +
            "\n    }\n}\n");
  CHECK(run.is_complete({.epochs = 5, .patience = never}));
}

TEST_CASE("EarlierRun: by steps the index is the step in files of all versions", "[runner]") {
  const Folder folder;
  dl::Logger logger({.console = false});
  const dl::detail::EarlierRun run(folder.path(), logger);
  const auto* latest = GENERATE("40.0", "40");
  std::ofstream(folder.path() / "latest.json") << "{\n    \"index\": " << latest << "\n}\n";
  CHECK(run.is_done({.epochs = {}, .steps = 40}));
  CHECK_FALSE(run.is_done({.epochs = {}, .steps = 41}));
}

TEST_CASE("TorchRunner: a run with files that count from 0 resumes and writes files that count from 1", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  const auto dir = trained(config);
  const auto whole = json_in(dir / "best.json");
  auto old = whole;
  old["index"] = static_cast<double>(whole["index"].get<std::int64_t>() - 1);
  std::ofstream(dir / "best.json") << old.dump(4) << "\n";
  config.auto_resume = true;
  CHECK(trained(config) == dir);
  CHECK(json_in(dir / "best.json")["index"].dump() == whole["index"].dump());
}

}  // namespace runner_test
