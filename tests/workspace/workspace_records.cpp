// The records of a run: metadata, results and the summary.
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/workspace/workspace.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

#include "workspace_in.hpp"

namespace workspace_test {

using danling_test::error_of;
using danling_test::read_file;

TEST_CASE("Workspace: metadata holds the config's texts and the code's state", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir, "1234abcd-d0123456789");
  options.timestamp = "20260102-030405-000006";
  Workspace workspace(options);
  danling::CodeIdentity code;
  code.id = options.code_id;
  code.commit = "1234abcd00000000000000000000000000000000";
  code.dirty = true;
  code.diff = "--- a/x\n+++ b/x\n";
  CHECK(error_of<danling::StateError>([&] { workspace.write_metadata("", "", "", code); }) ==
        "[workspace.write_metadata] expected an open workspace, got a closed one; call open() first");
  workspace.open(false);
  workspace.write_metadata("full: 1\n", "canonical: 2\n", "diff: 3\n", code);
  const auto folder = workspace.dir() / "metadata";
  CHECK(read_file(folder / "config.full.yaml") == "full: 1\n");
  CHECK(read_file(folder / "config.canonical.yaml") == "canonical: 2\n");
  CHECK(read_file(folder / "config.diff.yaml") == "diff: 3\n");
  CHECK(read_file(folder / "git.yaml") ==
        "commit: \"1234abcd-d0123456789\"\n"
        "revision: \"1234abcd00000000000000000000000000000000\"\n"
        "dirty: true\n"
        "id: \"1234abcd-d0123456789-0123456789ab\"\n"
        "timestamp: \"20260102-030405-000006\"\n"
        "problem: null\n");
  CHECK(read_file(folder / "git.diff") == code.diff);

  code.dirty = false;
  code.diff.clear();
  workspace.write_metadata("", "", "", code);
  CHECK_FALSE(fs::exists(folder / "git.diff"));
}

TEST_CASE("Workspace: results.json, latest.json and best.json as DanLing names their keys", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  options.timestamp = "t";
  Workspace workspace(options);
  workspace.open(false);
  danling::Result zero;
  zero["val"].set("loss", 0.5);
  danling::Result one;
  one["val"].set("loss", 0.1234567891);
  one["val"].set("matrix", danling::Result::Array{.shape = {2, 2}, .values = {1, 0, 0.1234567891, 2}});
  std::vector<danling::NumberedResult> book = {{1, zero}};
  workspace.write_results(book, book.back(), &book.back());
  book.push_back({2, one});
  workspace.write_results(book, book.back(), nullptr);

  const auto parse = [&](const char* name) {
    return nlohmann::ordered_json::parse(read_file(workspace.dir() / name)).dump();
  };
  const std::string head = R"({"name":"lin-exp","id":"1234abcd-0123456789ab","timestamp":"t",)";
  CHECK(
      parse("results.json") ==
      head +
          R"("results":{"1":{"val":{"loss":0.5}},"2":{"val":{"loss":0.12345679,"matrix":[[1.0,0.0],[0.12345679,2.0]]}}}})");
  CHECK(parse("latest.json") == head + R"("val":{"loss":0.12345679,"matrix":[[1.0,0.0],[0.12345679,2.0]]},"index":2})");
  CHECK(parse("best.json") == head + R"("val":{"loss":0.5},"index":1})");
}

TEST_CASE("Workspace: summary.json tells how an attempt ended", "[workspace]") {
  const TempDir dir;
  Workspace workspace(options_in(dir));
  workspace.open(false);
  danling::RunSummary summary;
  summary.status = "crashed";
  summary.error = "[data.read] expected \"x\"\nsecond line";
  summary.exit_code = 1;
  summary.epoch = 3;
  summary.global_step = 1200;
  summary.seconds = 1.5;
  summary.facts = {{"best_index", std::int64_t{3}}, {"tested", "best"}};
  summary.details.set("best_score", std::nan(""));
  workspace.write_summary(summary);
  const auto json = nlohmann::json::parse(read_file(workspace.dir() / "summary.json"));
  CHECK(json["status"] == "crashed");
  CHECK(json["error"] == summary.error);
  CHECK(json["signal"].is_null());
  CHECK(json["exit_code"] == 1);
  CHECK(json["epoch"] == 3);
  CHECK(json["global_step"] == 1200);
  CHECK(json["seconds"] == 1.5);
  CHECK(json["pid"] == getpid());
  CHECK(json["dir"] == workspace.dir().string());
  CHECK(json["log_file"] == workspace.log_file().string());
  CHECK(json["details"].dump() == R"({"best_index":3,"best_score":"NaN","tested":"best"})");

  summary = {};
  summary.status = "stopped";
  summary.signal = 15;
  summary.exit_code = 143;
  workspace.write_summary(summary);
  const auto stopped = nlohmann::json::parse(read_file(workspace.dir() / "summary.json"));
  CHECK(stopped["signal"] == 15);
  CHECK(stopped["error"].is_null());
}

}  // namespace workspace_test
