// danling runs compare.
#include <filesystem>
#include <string>

#include "made_run.hpp"

namespace runs_test {
namespace {

using danling_test::read_file;

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

}  // namespace
}  // namespace runs_test
