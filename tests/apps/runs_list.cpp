// danling runs ls and best.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/core/format.hpp>

#include "made_run.hpp"

namespace runs_test {
namespace {

TEST_CASE("danling runs ls: one line per run with status, progress, scores, duration and size", "[apps]") {
  const TempDir dir;
  finished_run(dir, {.config_id = "aaaa00000000", .timestamp = "20250102-030405-000001"});
  finished_run(dir, {.config_id = "bbbb00000000",
                     .lineage = "other",
                     .code_id = "1234abcd",
                     .timestamp = "20250102-030405-000002",
                     .status = "crashed",
                     .error = "no luck"});
  finished_run(dir, {.config_id = "aaaa10000000", .timestamp = "20250102-030405-000003", .status = ""});
  const auto running =
      MadeRun{.config_id = "cccc00000000", .timestamp = "20250102-030405-000004", .status = ""}.write(dir);
  const auto result = run_danling({"runs", "ls", runs_root(dir)});
  CHECK(result.err == "");
  CHECK(result.code == 0);
  const auto size = [&](const char* path) {
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir / "experiments" / path)) {
      bytes += entry.is_regular_file() ? entry.file_size() : 0;
    }
    return danling::to_fixed(static_cast<double>(bytes) / 1024, 1) + " KiB\n";
  };
  CHECK(result.out.find(
            "run    lineage  name       status    progress     best val.acc  latest     started  duration") == 0);
  CHECK_THAT(result.out,
             ContainsSubstring("cccc   lin      lin-exp    running   epoch 2/20         0.7500  0.5000  2025-01-02  "));
  CHECK_THAT(result.out,
             ContainsSubstring("aaaa1  lin      lin-exp    dead      epoch 2/20         0.7500  0.5000  2025-01-02  "));
  CHECK_THAT(
      result.out,
      ContainsSubstring("bbbb   other    other-exp  crashed   epoch 2/20         0.7500  0.5000  2025-01-02  2:05"));
  CHECK_THAT(
      result.out,
      ContainsSubstring("aaaa0  lin      lin-exp    finished  epoch 20/20        0.7500  0.5000  2025-01-02  2:05"));
  CHECK_THAT(result.out, ContainsSubstring("  " + size("lin/aaaa00000000")));
  CHECK_THAT(result.out, ContainsSubstring("  " + size("other-1234abcd/1234abcd-bbbb00000000")));
  CHECK(result.out.find('\x1b') == std::string::npos);
}

TEST_CASE("danling runs ls: sorts, filters and limits", "[apps]") {
  const TempDir dir;
  finished_run(dir, {.config_id = "aaaa00000000", .timestamp = "20250102-030405-000003", .score = 0.5, .lr = 0.1});
  finished_run(dir, {.config_id = "bbbb00000000",
                     .timestamp = "20250102-030405-000002",
                     .status = "crashed",
                     .score = 0.75,
                     .lr = 0.01});
  finished_run(dir, {.config_id = "cccc00000000",
                     .lineage = "other",
                     .timestamp = "20250102-030405-000001",
                     .score = 0.25,
                     .lr = 0.2});
  const std::string a = "aaaa00000000";
  const std::string b = "bbbb00000000";
  const std::string c = "cccc00000000";
  CHECK(ids(listed(dir)) == std::vector{a, b, c});
  CHECK(ids(listed(dir, {"--sort", "score"})) == std::vector{b, a, c});
  CHECK(ids(listed(dir, {"--sort", "score", "--limit", "1"})) == std::vector{b});
  CHECK(ids(listed(dir, {"--sort", "optim.lr"})) == std::vector{b, a, c});
  CHECK(ids(listed(dir, {"--sort", "optim.lr", "--reverse"})) == std::vector{c, a, b});
  CHECK(ids(listed(dir, {"--sort", "status"})) == std::vector{b, a, c});
  CHECK(ids(listed(dir, {"--filter", "status=finished"})) == std::vector{a, c});
  CHECK(ids(listed(dir, {"--filter", "optim.lr=1e-1"})) == std::vector{a});
  CHECK(ids(listed(dir, {"--filter", "status=finished", "--filter", "lineage=other"})) == std::vector{c});
  CHECK(ids(listed(dir, {"--filter", "optim.none=1"})).empty());

  const auto error = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"runs", "ls", runs_root(dir)});
    const auto result = run_danling(words);
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(error({"--sort", "scor"}) ==
        "[danling runs ls] expected --sort with a column or a config key of some run, got 'scor'; did you mean "
        "'score'?\n");
  CHECK(error({"--filter", "status"}) ==
        "[danling runs ls] expected --filter KEY=VALUE, such as status=finished or optim.lr=0.1, got 'status'\n");
  CHECK(run_danling({"runs", "ls", (dir / "none").string()}).err ==
        "[runs.list] expected a directory with runs, got 'No such file or directory' for '" + (dir / "none").string() +
            "'\n");
  fs::create_directories(dir / "empty");
  CHECK(run_danling({"runs", "ls", (dir / "empty").string()}).err ==
        "[danling runs] expected runs below '" + (dir / "empty").string() +
            "', got none; pass the workspace_root of the runs\n");
}

TEST_CASE("danling runs ls: a thousand runs, damaged ones among them, each by a name of its own", "[apps]") {
  const TempDir dir;
  const auto first = finished_run(dir);
  for (int i = 0; i < 999; ++i) {
    std::string id = std::to_string(i * 7919 % 1000);
    id = std::string(12 - id.size(), 'f') + id;
    const auto copy = dir / "experiments/lin" / id;
    fs::create_directories(copy / "metadata");
    for (const char* name : {".lock", "summary.json", "metadata/config.full.yaml", "metadata/git.yaml"}) {
      fs::copy_file(first / name, copy / name);
    }
    if (i % 100 == 0) {
      write_file(copy / "summary.json", "{\"status\": \"fin");
    }
  }
  const auto list = listed(dir);
  CHECK(list.size() == 1000);
  std::set<std::string> names;
  std::size_t dead = 0;
  for (const auto& run : list) {
    names.insert(run.at("short").get<std::string>());
    dead += run.at("status") == "dead" ? 1 : 0;
    CHECK(run.at("id").get<std::string>().starts_with(run.at("short").get<std::string>()));
  }
  CHECK(names.size() == 1000);
  CHECK(dead == 10);
}

TEST_CASE("danling runs best: by the score of the runs or any other, in the direction that they show", "[apps]") {
  const TempDir dir;
  finished_run(dir, {.config_id = "aaaa00000000", .score = 0.5});
  const auto b = finished_run(dir, {.config_id = "bbbb00000000", .score = 0.75});
  finished_run(dir, {.config_id = "cccc00000000", .status = "", .score = 0.25});
  const auto best = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"runs", "best", runs_root(dir)});
    return run_danling(words);
  };
  CHECK(best({}).out.find("run   val.acc  epoch  status    best checkpoint\n") == 0);
  CHECK_THAT(best({"-n", "1"}).out,
             ContainsSubstring("\nbbbb   0.7500      1  finished  " + (b / "checkpoints/best.pth").string() + "\n"));
  CHECK(best({"-n", "1"}).out.find("aaaa") == std::string::npos);
  // The smallest of all rows: each run's second.
  const auto smallest = nlohmann::json::parse(best({"--mode", "min", "--json"}).out);
  CHECK(ids(smallest) == std::vector<std::string>{"cccc00000000", "aaaa00000000", "bbbb00000000"});
  CHECK(smallest[0].at("best") == 0.0);
  CHECK(smallest[0].at("best_index") == 2);
  CHECK(nlohmann::json::parse(best({"--score", "train.loss", "--filter", "status=finished", "--json"}).out).size() ==
        2);
  const auto unknown = best({"--score", "val.ac"});
  CHECK(unknown.code == 2);
  CHECK(unknown.err ==
        "[danling runs best] expected runs with the score 'val.ac', got none; did you mean 'val.acc'?; "
        "their results have [train.loss, val.acc]\n");
}

}  // namespace
}  // namespace runs_test
