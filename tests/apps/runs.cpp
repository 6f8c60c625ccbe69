// danling runs ls, show, compare, best and rm.
#include <pty.h>
#include <sys/wait.h>

#include <cstdlib>
#include <set>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/workspace/run_directory.hpp>
#include <danling/workspace/workspace.hpp>

#include <apps/command.hpp>

namespace {

using danling::State;
using danling_test::read_file;
using danling_test::run_danling;
using danling_test::TempDir;
using danling_test::write_file;
namespace fs = std::filesystem;

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

fs::path finished_run(const TempDir& dir, MadeRun run = {}) {
  auto workspace = run.write(dir);
  workspace.close();
  return workspace.dir();
}

std::string runs_root(const TempDir& dir) { return (dir / "experiments").string(); }

nlohmann::json listed(const TempDir& dir, std::vector<std::string> words = {}) {
  words.insert(words.begin(), {"runs", "ls", runs_root(dir), "--json"});
  const auto result = run_danling(words);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return nlohmann::json::parse(result.out);
}

std::vector<std::string> ids(const nlohmann::json& list) {
  std::vector<std::string> out;
  for (const auto& run : list) {
    out.push_back(run.at("id").get<std::string>());
  }
  return out;
}

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
    return danling::to_fixed(static_cast<double>(bytes) / 1000, 1) + " kB\n";
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

TEST_CASE("danling runs show: status, error, config, results, checkpoints, attempts and the end of the log", "[apps]") {
  const TempDir dir;
  finished_run(dir, {.timestamp = "20250101-000000-000000", .status = "stopped"});
  const auto path = finished_run(dir, {.status = "crashed", .error = "[loader.read] no luck"});
  const auto result = run_danling({"runs", "show", "0123", "--root", runs_root(dir)});
  CHECK(result.err == "");
  CHECK(result.code == 0);
  for (const std::string text :
       {"run        lin/0123456789ab  lin-exp\n", "status     crashed, exit code 1\n",
        "error      [loader.read] no luck\n", "progress   epoch 2/20, step 40\n", "took 2:05", "code       unknown\n",
        "  epochs: 20\n", "  epoch  val.acc  train.loss\n", "      1   0.7500      0.5000  best\n",
        "      2   0.5000      0.5000\n", "to resume: the run's command with --auto_resume true\n",
        "  20250101-000000-000000  stopped after 2:05\n", "  the last line of the log\n"}) {
    CHECK_THAT(result.out, ContainsSubstring(text));
  }
  CHECK_THAT(result.out, ContainsSubstring("directory  " + path.string() + "\n"));
  const auto by_path = run_danling({"runs", "show", path.string()}).out;
  CHECK(by_path.substr(0, by_path.find("\ncheckpoints")) == result.out.substr(0, result.out.find("\ncheckpoints")));
}

TEST_CASE("danling runs show: a run that was killed, and one without its files", "[apps]") {
  const TempDir dir;
  const auto path = finished_run(dir, {.status = ""});
  CHECK_THAT(run_danling({"runs", "show", path.string()}).out,
             ContainsSubstring("ended without a summary; it was killed, or the machine went down"));
  for (const char* name : {"results.json", "best.json", "latest.json", "metrics.jsonl", "logs", "checkpoints"}) {
    fs::remove_all(path / name);
  }
  write_file(path / "metadata/config.full.yaml", "epochs: [");
  fs::remove(path / "metadata/config.diff.yaml");
  const auto result = run_danling({"runs", "show", path.string()});
  CHECK(result.code == 0);
  CHECK(result.err == "");
  CHECK_THAT(result.out, ContainsSubstring("  no file '" + (path / "metadata/config.diff.yaml").string() + "'"));
  CHECK_THAT(result.out, ContainsSubstring("  none: no file '" + (path / "results.json").string() + "'"));
  CHECK_THAT(result.out, ContainsSubstring("  none; the run cannot be resumed"));
}

TEST_CASE("danling runs show: a run with directories of shards can be resumed", "[apps]") {
  const TempDir dir;
  const auto path = finished_run(dir, {.status = "stopped"});
  fs::remove_all(path / "checkpoints");
  write_file(path / "checkpoints/best.pointer", "best-g000000000040-q1");
  const auto before = run_danling({"runs", "show", path.string()}).out;
  CHECK_THAT(before, ContainsSubstring("  best.pointer: a directory; danling ckpt ls shows it\n"));
  CHECK_THAT(before, ContainsSubstring("  no latest.pth to resume from"));
  write_file(path / "checkpoints/latest.pointer", "latest-g000000000040-q1");
  const auto after = run_danling({"runs", "show", path.string()}).out;
  CHECK_THAT(after, ContainsSubstring("  latest.pointer: a directory; danling ckpt ls shows it\n"));
  CHECK_THAT(after, ContainsSubstring("  to resume: the run's command with --auto_resume true\n"));
}

TEST_CASE("danling runs: a run is found by the beginning of one id, and an error names the others", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.config_id = "aaaa00000000", .code_id = "1234abcd"});
  const auto b = finished_run(dir, {.config_id = "aaaa10000000"});
  const auto c = finished_run(dir, {.config_id = "aaaa00000000", .lineage = "other"});
  const auto show = [&](const std::string& word) {
    return run_danling({"runs", "show", word, "--root", runs_root(dir)});
  };
  CHECK_THAT(show("aaaa1").out, ContainsSubstring("run        lin/aaaa10000000"));
  CHECK_THAT(show("1234").out, ContainsSubstring("run        lin-1234abcd/1234abcd-aaaa00000000"));
  CHECK_THAT(show("other").out, ContainsSubstring("run        other/aaaa00000000"));
  CHECK_THAT(show("other/aaaa0").out, ContainsSubstring("run        other/aaaa00000000"));
  CHECK_THAT(show("lin-1234abcd/aaaa").out, ContainsSubstring("run        lin-1234abcd/1234abcd-aaaa00000000"));
  const auto several = show("aaaa0");
  CHECK(several.code == 2);
  CHECK(several.err ==
        "[danling runs] expected the beginning of one run's id, got 'aaaa0', which 2 have: lin-1234abcd/aaaa (" +
            a.string() + "), other/aaaa (" + c.string() + ")\n");
  const auto none = show("otter");
  CHECK(none.code == 2);
  CHECK(none.err == "[danling runs] expected a run below '" + runs_root(dir) +
                        "', got 'otter'; did you mean 'other'?; danling runs ls " + runs_root(dir) +
                        " lists the 3 there\n");
  CHECK(show(runs_root(dir)).err == "[danling runs] expected a run's directory, got '" + runs_root(dir) +
                                        "', which has neither a lock nor metadata of a run\n");
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

// ---- compare --------------------------------------------------------------------------------------------------------

TEST_CASE("danling runs compare: runs with the same numbers are identical, whatever their telemetry", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.timestamp = "20250102-030405-000001"});
  const auto b = finished_run(dir, {.lineage = "other", .timestamp = "20250102-030405-000002"});
  std::string text = read_file(b / "metrics.jsonl");
  text.replace(text.find("\"time\":0.003"), 12, "\"time\":7");
  write_file(b / "metrics.jsonl", text + "{\"split\":\"half a li");
  const auto result = run_danling({"runs", "compare", a.string(), b.string()});
  CHECK(result.err == "");
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("lineage  lin  other  (not part of the run's id)\n"));
  CHECK(result.out.ends_with(
      "\nidentical as far as compared: config, results (2 rows), metrics.jsonl (2 lines), latest.pth (3 values)\n"));
}

TEST_CASE("danling runs compare: ends with the first differing key, result, step and tensor", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.config_id = "aaaa00000000"});
  const auto b = finished_run(dir, {.config_id = "bbbb00000000", .score = 0.5, .lr = 0.25});
  const auto result = run_danling({"runs", "compare", "aaaa", "bbbb", "--root", runs_root(dir)});
  CHECK(result.err == "");
  CHECK(result.code == 1);
  CHECK(result.out.ends_with(
      "\nfirst differing config key: optim.lr: 0.003 in A, 0.25 in B\n"
      "first differing result: epoch 1: val.acc: 0.75 in A, 0.5 in B\n"
      "first differing step: step 40 (line 2, split \"val\", whole pass): acc: 0.75 in A, 0.5 in B\n"
      "first differing tensor of latest.pth: model.weight: 6 of 6 elements differ, first at [0, 0]: 0.003 and 0.25; "
      "largest difference 0.24699999997392297\n"));

  write_file(b / "metrics.jsonl", MadeRun().metrics() + MadeRun().metrics());
  CHECK_THAT(run_danling({"runs", "compare", a.string(), b.string()}).out,
             ContainsSubstring("first differing step: step 20 (line 3, split \"train\"): only in B\n"));
  write_file(b / "metrics.jsonl", "{\"global_step\":1}\nno JSON\n");
  write_file(a / "metrics.jsonl", "{\"global_step\":1}\n{}\n");
  const auto damaged = run_danling({"runs", "compare", a.string(), b.string()});
  CHECK(damaged.code == 2);
  CHECK_THAT(damaged.err, ContainsSubstring("expected a JSON object, got 'no JSON' (file '" +
                                            (b / "metrics.jsonl").string() + "', line 2)"));
}

TEST_CASE("danling runs compare: says what it could not compare", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.config_id = "aaaa00000000"});
  const auto b = finished_run(dir, {.config_id = "bbbb00000000"});
  fs::remove(b / "metrics.jsonl");
  fs::remove_all(b / "checkpoints");
  const auto result = run_danling({"runs", "compare", a.string(), b.string()});
  CHECK(result.code == 0);
  CHECK_THAT(result.out,
             ContainsSubstring("not compared: metrics: no file '" + (b / "metrics.jsonl").string() + "'\n"));
  CHECK_THAT(result.out, ContainsSubstring("not compared: checkpoints: the runs have none with the same name\n"));
  CHECK(run_danling({"runs", "compare", a.string(), b.string(), "--checkpoint", "best"}).err ==
        "[danling runs compare] expected a checkpoint of both runs, got 'best.pth', which B lacks\n");
}

// ---- rm -------------------------------------------------------------------------------------------------------------

TEST_CASE("danling runs rm: removes runs as a whole, after --yes alone where nobody can be asked", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.config_id = "aaaa00000000"});
  const auto b = finished_run(dir, {.config_id = "bbbb00000000"});
  const auto rm = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"runs", "rm", "--root", runs_root(dir)});
    return run_danling(words);
  };
  CHECK_THAT(rm({"aaaa", "--dry-run"}).out, ContainsSubstring("would remove 1 run, "));
  CHECK(fs::exists(a / "summary.json"));
  const std::string refused = danling::detail::concat("'", DANLING_COMMAND_BINARY, "' runs rm '", a.string(),
                                                      "' </dev/null 2>'", (dir / "error").string(), "' >/dev/null");
  CHECK(WEXITSTATUS(std::system(refused.c_str())) == 2);
  CHECK(read_file(dir / "error") ==
        "[danling runs rm] expected --yes, since standard input is not a terminal; --dry-run prints what "
        "would be removed\n");
  CHECK(fs::exists(a / "summary.json"));
  const auto result = rm({"aaaa", "bbbb", "aaaa00000000", "--yes"});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("removed 2 runs, "));
  CHECK(fs::is_empty(dir / "experiments/lin"));
}

TEST_CASE("danling runs rm: refuses before anything is removed", "[apps]") {
  const TempDir dir;
  const auto a = finished_run(dir, {.config_id = "aaaa00000000"});
  const auto running = MadeRun{.config_id = "bbbb00000000"}.write(dir);
  const auto refusal = [&](const std::string& word, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"runs", "rm", "aaaa", word, "--yes", "--root", runs_root(dir)});
    const auto result = run_danling(more);
    CHECK(result.code == 2);
    CHECK(fs::exists(a / "checkpoints/latest.pth"));
    return result.err;
  };
  const auto owner = danling::RunDirectory(running.dir()).lock();
  CHECK(refusal("bbbb") == danling::detail::concat("[runs.hold] expected a run in which no process runs, got process ",
                                                   owner.pid, " on ", owner.host, " in '",
                                                   fs::canonical(running.dir()).string(), "'; stop it first\n"));
  CHECK(fs::exists(running.dir() / "summary.json"));

  write_file(dir / "home/.lock", "not of a run");
  write_file(dir / "home/photo", "dear");
  CHECK(refusal((dir / "home").string()) == "[danling runs] expected a run's directory, got '" +
                                                (dir / "home").string() +
                                                "', which has neither a lock nor metadata of a run\n");
  CHECK(read_file(dir / "home/photo") == "dear");

  const TempDir elsewhere;
  const auto other = finished_run(elsewhere, {.config_id = "cccc00000000"});
  fs::create_directory_symlink(other, dir / "experiments/lin/cccc00000000");
  CHECK_THAT(refusal("cccc"), ContainsSubstring(", a link to '" + other.string() + "'; name the directory itself"));
  fs::create_directory_symlink(elsewhere / "experiments/lin", dir / "experiments/linked");
  fs::remove(dir / "experiments/lin/cccc00000000");
  CHECK_THAT(refusal("cccc"), ContainsSubstring("which a link resolves to"));
  CHECK(fs::exists(other / "summary.json"));
  CHECK(refusal("aaaa", {"--keep", "worst"}) == "[danling runs rm] expected --keep best or latest, got 'worst'\n");
}

TEST_CASE("danling runs rm --keep: leaves the records and one checkpoint", "[apps]") {
  const TempDir dir;
  finished_run(dir, {.timestamp = "20250101-000000-000000", .status = "stopped"});
  const auto path = finished_run(dir);
  write_file(path / "checkpoints/notes.txt", "mine");
  CHECK(run_danling({"runs", "rm", path.string(), "--keep", "best", "--yes"}).code == 0);
  CHECK(fs::exists(path / "checkpoints/best.pth"));
  CHECK_FALSE(fs::exists(path / "checkpoints/latest.pth"));
  CHECK_FALSE(fs::exists(path / "attempts"));
  for (const char* kept :
       {"checkpoints/notes.txt", "results.json", "metrics.jsonl", "summary.json", "metadata/git.yaml"}) {
    CHECK(fs::exists(path / kept));
  }
  const auto none = run_danling({"runs", "rm", path.string(), "--keep", "latest", "--yes"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, ContainsSubstring("expected latest.pth to keep in"));
  CHECK(fs::exists(path / "checkpoints/best.pth"));
}

TEST_CASE("danling runs rm: asks on a terminal", "[apps]") {
  const TempDir dir;
  const auto path = finished_run(dir);
  const std::string word = path.string();
  for (const std::string answer : {"n\n", "y\n"}) {
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(60);
      execl(DANLING_COMMAND_BINARY, DANLING_COMMAND_BINARY, "runs", "rm", word.c_str(), nullptr);
      _exit(127);
    }
    std::string shown;
    char byte = 0;
    while (shown.find("[y/N]") == std::string::npos && read(terminal, &byte, 1) == 1) {
      shown += byte;
    }
    CHECK_THAT(shown, ContainsSubstring("Remove 1 run, "));
    CHECK(write(terminal, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()));
    while (read(terminal, &byte, 1) == 1) {
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    close(terminal);
    CHECK(WEXITSTATUS(status) == (answer == "y\n" ? 0 : 1));
    CHECK(fs::exists(path) == (answer == "n\n"));
  }
}

}  // namespace
