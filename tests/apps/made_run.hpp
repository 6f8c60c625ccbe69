// Runs as a program leaves them, for danling runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>  // before the test framework, whose CHECK it would replace

#include <danling/checkpoint/file.hpp>
#include <danling/core/format.hpp>
#include <danling/workspace/workspace.hpp>

#include <apps/command.hpp>

namespace runs_test {

namespace fs = std::filesystem;
using danling::State;
using danling_test::run_danling;
using danling_test::TempDir;
using danling_test::write_file;

/// A run as a program leaves it: two epochs, the first of which was the best.
struct MadeRun {
  std::string config_id = "0123456789ab";
  std::string lineage = "lin";
  std::string code_id = {};
  std::string timestamp = "20260102-030405-000006";
  std::string status = "finished";  // empty: no summary
  double score = 0.75;
  double lr = 0.003;
  std::string error = {};

  danling::Workspace write(const TempDir& dir) const {
    danling::WorkspaceOptions options;
    options.root = (dir / "experiments").string();
    options.lineage = lineage;
    options.code_id = code_id;
    options.config_id = config_id;
    options.timestamp = timestamp;
    danling::Workspace out(options);
    out.open(false);
    const std::string canonical = danling::detail::concat("optim:\n  lr: ", lr, "\n");
    out.write_metadata(
        danling::detail::concat("epochs: 20\nsteps: null\nscore_name: acc\nscore_split: null\nscore_mode: null\n",
                                "lineage: ", lineage, "\nexperiment: exp\nname: null\n", canonical),
        canonical, "epochs: 20\n", {});
    const auto row = [&](std::int64_t index, double acc) {
      danling::NumberedResult result{index, {}};
      result.result["train"].set("loss", 0.5);
      result.result["val"].set("acc", acc);
      return result;
    };
    const auto best = row(1, score);
    const auto latest = row(2, score - 0.25);
    out.write_results({best, latest}, latest, &best);
    write_file(out.metrics_file(), metrics());
    State state;
    state["model"]["weight"] = at::full({2, 3}, lr);
    state["model"]["bias"] = at::zeros({3});
    state["runner"]["epochs"] = 20;
    danling::save_file(state, out.checkpoint_dir() / "latest.pth");
    danling::save_file(state, out.checkpoint_dir() / "best.pth");
    write_file(out.log_file(), "the last line of the log\n");
    if (!status.empty()) {
      danling::RunSummary summary;
      summary.status = status;
      summary.error = error;
      summary.exit_code = status == "finished" ? 0 : 1;
      summary.epoch = status == "finished" ? 20 : 2;
      summary.global_step = 40;
      summary.seconds = 125;
      summary.facts = {{"best_index", std::int64_t{1}}, {"latest_index", std::int64_t{2}}};
      summary.details["best"] = best.result;
      summary.details["latest"] = latest.result;
      out.write_summary(summary);
    }
    return out;
  }

  std::string metrics() const {
    return "{\"split\":\"train\",\"mode\":\"train\",\"epoch\":0,\"global_step\":20,\"iteration\":20,\"loss\":0.5,"
           "\"telemetry\":{\"time\":" +
           danling::to_text(lr) +
           "}}\n{\"split\":\"val\",\"mode\":\"evaluate\",\"epoch\":1,\"global_step\":40,\"acc\":" +
           danling::to_text(score) + "}\n";
  }
};

inline fs::path finished_run(const TempDir& dir, MadeRun run = {}) {
  auto workspace = run.write(dir);
  workspace.close();
  return workspace.dir();
}

inline std::string runs_root(const TempDir& dir) { return (dir / "experiments").string(); }

inline nlohmann::json listed(const TempDir& dir, std::vector<std::string> words = {}) {
  words.insert(words.begin(), {"runs", "ls", runs_root(dir), "--json"});
  const auto result = run_danling(words);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return nlohmann::json::parse(result.out);
}

inline std::vector<std::string> ids(const nlohmann::json& list) {
  std::vector<std::string> out;
  for (const auto& run : list) {
    out.push_back(run.at("id").get<std::string>());
  }
  return out;
}

}  // namespace runs_test
