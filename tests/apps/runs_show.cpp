// danling runs show, and how it and others find a run.
#include <filesystem>
#include <string>

#include "made_run.hpp"

namespace runs_test {
namespace {

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

}  // namespace
}  // namespace runs_test
