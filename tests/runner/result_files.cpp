// Files of metrics and results that cannot be written: errors, and the files in the end.
#include <optional>

#include <danling/checkpoint/manager.hpp>

#include <support/file_size_limit.hpp>

#include "fixture.hpp"

namespace runner_test {

using danling_test::FileSizeLimit;

// A file of results without the time at which its attempt began.
std::string results_of(const fs::path& file) {
  std::istringstream in(read_file(file));
  std::string out;
  for (std::string line; std::getline(in, line);) {
    out += line.find("\"timestamp\"") == std::string::npos ? line + "\n" : std::string();
  }
  return out;
}

TEST_CASE("full disk: metrics and results are logged once and written again when there is space", "[runner]") {
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
      fs::resize_file(self.workspace().log_file(), 0);  // the log stays below the limit
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
  const auto log = logs_of(dir);
  CHECK(
      count(log,
            "[metrics_log.append] expected to write " + (dir / "metrics.jsonl").string() +
                ", got 'File too large'; training continues, metrics lines stay in memory until they can be written") ==
      1);
  CHECK(count(log, "[metrics_log") == 1);
  CHECK(count(log, "metrics: all lines are written again") == 1);
  CHECK(count(log, "[workspace.write] expected to write '" + (dir / "results.json").string() +
                       "', got errno 27 (File too large); training continues, the next result retries") == 1);
  CHECK(count(log, "[workspace.write") == 1);
  CHECK(count(log, "results: all files are written again") == 1);
  const auto state = dl::load_file(dir / "checkpoints" / "latest.pth");
  CHECK(state.at("metrics_lines").integer() ==
        dl::load_file(whole / "checkpoints" / "latest.pth").at("metrics_lines").integer());
}

TEST_CASE("full disk: a checkpoint has the lines of metrics that are not written", "[runner]") {
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

TEST_CASE("full disk: with checkpoint.on_error: stop a line of metrics that is not written ends training", "[runner]") {
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
  const auto text = error_of<dl::Error>([&] { runner.train(); });
  full.reset();
  CHECK(text == "[metrics_log.append] expected to write " + runner.workspace().metrics_file().string() +
                    ", got 'File too large'");
  CHECK(runner.micro_batches == 3);
}

TEST_CASE("results: a last result that cannot be written is an error, and the next start writes it", "[runner]") {
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
    const auto text = error_of<dl::Error>([&] { runner.train(); });
    CHECK(text == "[workspace.write] expected to rename the new file to '" + results.string() +
                      "', got errno 21 (Is a directory)");
    CHECK(runner.results().rows().back().index == (config.steps ? 21 : 2));
    best = std::to_string(runner.round_number(runner.results().best_index()));
  }
  CHECK(fs::exists(results.parent_path() / "checkpoints" / "latest.pth"));
  fs::remove_all(results);
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.micro_batches == 0);
  CHECK_THAT(read_file(results), ContainsSubstring(config.steps ? "\"21\": {" : "\"3\": {"));
  CHECK_THAT(read_file(results.parent_path() / "best.json"), ContainsSubstring("\"index\": " + best + "\n"));
}

}  // namespace runner_test
