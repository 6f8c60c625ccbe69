#include <danling/telemetry/wandb.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <telemetry/sink_run.hpp>

#include <support/error.hpp>
#include <support/file_size_limit.hpp>

namespace wandb_test {

using danling::EndRecord;
using danling::Result;
using danling::WandbSink;
using danling_test::error_of;
using danling_test::FileSizeLimit;
using danling_test::python_with;
using danling_test::read_file;
using danling_test::run_script;
using danling_test::SinkRun;
using danling_test::TempDir;
using danling_test::values_of;
using nlohmann::json;

namespace fs = std::filesystem;

constexpr const char* first_attempt = "20261231-235959-123456";
constexpr const char* second_attempt = "20270101-000102-000001";
// The digits of the time behind the start of XXH3-128 of the id, by `printf %s 1a2b3c4d-0123456789ab | xxhsum -H2`.
constexpr const char* first_id = "d6bda489d45b20261231235959123456";

std::vector<fs::path> offline_runs(const fs::path& dir) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(dir / "wandb")) {
    out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(dir)) {
    out.push_back(entry.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Without a Python that has wandb, null.
json upload(const fs::path& run) {
  const auto python = python_with("wandb");
  if (!python) {
    return nullptr;
  }
  const TempDir out;
  run_script("wandb_sync.py", "'" + run.string() + "' '" + (out / "out.json").string() + "'", out / "log");
  INFO(read_file(out / "log"));
  REQUIRE(fs::exists(out / "out.json"));
  return json::parse(read_file(out / "out.json"));
}

TEST_CASE("WandbSink: wandb uploads every number, the config and the end", "[telemetry][wandb]") {
  SinkRun run;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  WandbSink sink({.entity = "team", .job_type = "train", .tags = {"a", "é"}, .git_commit = "0123abcd"});
  run.begin(sink, first_attempt, 1000.5);
  Result values = values_of({{"loss", 0.1}, {"nan", std::nan("")}, {"up", infinity}, {"down", -infinity}});
  values.set("tiny", 4.9406564584124654e-324);
  values.set("sum", 0.1 + 0.2);
  values.set("large", -1.7976931348623157e308);
  values.set("per_class", std::vector<double>{0.5, 0.25});
  run.log(sink, "train", 1, values, 1001.25);
  run.log(sink, "train", 3, values_of({{"loss", 1e22}}), 1002);
  run.log(sink, "val", 3, values_of({{"loss", 2}}), 1003);
  sink.flush();
  sink.end({.status = "finished", .error = "", .global_step = 3, .metrics = {{"val/loss", 2.0}}, .time = 1010.75});

  REQUIRE(offline_runs(run.dir()) ==
          std::vector<fs::path>{run.dir() / "wandb" / (std::string("offline-run-20261231_235959-") + first_id)});
  const json got = upload(offline_runs(run.dir())[0]);
  if (got.is_null()) {
    return;
  }
  CHECK(got["run"]["name"] == first_id);
  CHECK(got["run"]["project"] == "mnist");
  CHECK(got["run"]["groupName"] == "wide");
  CHECK(got["run"]["displayName"] == "1a2b3c4d-0123456789ab");
  CHECK(got["run"]["entity"] == "team");
  CHECK(got["run"]["jobType"] == "train");
  CHECK(got["run"]["tags"] == json({"a", "é"}));
  CHECK(got["run"]["commit"] == "0123abcd");
  json config = got["run"]["config"];
  config.erase("_wandb");
  CHECK(config == json::parse(R"({"optim": {"lr": 0.1}, "seed": 7, "name": null, "sizes": [1, 2], "limit": "inf",
                                  "note": "é \"x\"\n"})"));
  const json first = {{"_step", 1},
                      {"_timestamp", 1001.25},
                      {"_runtime", 0.75},
                      {"telemetry/train_step/time", 0.125},
                      {"train_step/loss", 0.1},
                      {"train_step/nan", "nan"},
                      {"train_step/up", "inf"},
                      {"train_step/down", "-inf"},
                      {"train_step/tiny", 4.9406564584124654e-324},
                      {"train_step/sum", 0.1 + 0.2},
                      {"train_step/large", -1.7976931348623157e308},
                      {"train_step/per_class/0", 0.5},
                      {"train_step/per_class/1", 0.25}};
  const json second = {{"_step", 3},
                       {"_timestamp", 1003.0},
                       {"_runtime", 2.5},
                       {"telemetry/train_step/time", 0.125},
                       {"train_step/loss", 1e22},
                       {"telemetry/val/time", 0.125},
                       {"val/loss", 2.0}};
  REQUIRE(got["history"].size() == 2);
  CHECK(got["history"][0] == first);
  CHECK(got["history"][1] == second);
  json summary = first;
  summary.update(second);
  summary["results/val/loss"] = 2.0;
  summary["_wandb"] = {{"runtime", 10}};
  CHECK(got["summary"] == summary);
  CHECK(got["exitcode"] == 0);
}

TEST_CASE("WandbSink: records of one step are one row, and steps do not go back", "[telemetry][wandb]") {
  SinkRun run;
  WandbSink sink({});
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "train", 5, values_of({{"loss", 3}, {"acc", 1}}), 1001);
  run.log(sink, "train", 5, values_of({{"loss", 2}}), 1002);
  run.log(sink, "test", 4, values_of({{"loss", 9}}), 1003);
  run.log(sink, "test", 5, values_of({{"loss", 1}}), 1004);
  run.log(sink, "train", 6, values_of({{"loss", 0}}), 1005);
  run.log(sink, "test", 5, values_of({{"loss", 9}}), 1006);
  sink.end({.status = "crashed", .error = "out of memory", .global_step = 6, .metrics = {}, .time = 1007});
  const json got = upload(offline_runs(run.dir())[0]);
  if (got.is_null()) {
    return;
  }
  REQUIRE(got["history"].size() == 2);
  CHECK(got["history"][0]["_step"] == 5);
  CHECK(got["history"][0]["train_step/loss"] == 2.0);
  CHECK(got["history"][0]["train_step/acc"] == 1.0);
  CHECK(got["history"][0]["test/loss"] == 1.0);
  CHECK(got["history"][1]["_step"] == 6);
  CHECK_FALSE(got["history"][1].contains("test/loss"));
  CHECK(got["exitcode"] == 1);
}

TEST_CASE("WandbSink: log boundaries of an evaluation are left out, and arrays", "[telemetry][wandb]") {
  SinkRun run;
  WandbSink sink({});
  run.begin(sink, first_attempt, 1000);
  auto inside = run.append("val", 7, values_of({{"loss", 9}}), 1001);
  inside.iteration = 3;
  sink.scalars(inside);
  Result whole = values_of({{"loss", 1}});
  whole.set("confusion_matrix", Result::Array{.shape = {1, 2}, .values = {1, 2}});
  whole["task"].set("acc", 0.5);
  run.log(sink, "val", 7, whole, 1002);
  sink.end({.status = "finished", .error = "", .global_step = 7, .metrics = {}, .time = 1003});
  const json got = upload(offline_runs(run.dir())[0]);
  if (got.is_null()) {
    return;
  }
  CHECK(got["history"] == json::array({{{"_step", 7},
                                        {"_timestamp", 1002.0},
                                        {"_runtime", 2.0},
                                        {"telemetry/val/time", 0.125},
                                        {"val/loss", 1.0},
                                        {"val/task/acc", 0.5}}}));
}

TEST_CASE("WandbSink: hostile names and texts reach wandb whole", "[telemetry][wandb]") {
  SinkRun run;
  const std::string name(70000, 'n');  // in three blocks of the log
  WandbSink sink({.project = "a/b", .name = "../é\n\xff", .dir = run.dir() / "a dir"});
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "t/../é", 1, values_of({{"..", 1}, {"a.b/c d", 2}, {name, 3}, {"\"\\\n", 4}, {"", 5}}), 1001);
  sink.end({.status = "stopped", .error = "", .global_step = 1, .metrics = {}, .time = 1002});
  const json got = upload(offline_runs(run.dir() / "a dir")[0]);
  if (got.is_null()) {
    return;
  }
  CHECK(got["run"]["displayName"] == "../é\n\xEF\xBF\xBD");
  REQUIRE(got["history"].size() == 1);
  json row = got["history"][0];
  CHECK(row["t/../é/.."] == 1.0);
  CHECK(row["t/../é/a.b/c d"] == 2.0);
  CHECK(row["t/../é/" + name] == 3.0);
  CHECK(row["t/../é/\"\\\n"] == 4.0);
  CHECK(row["t/../é/"] == 5.0);
  CHECK(got["exitcode"] == 255);
}

TEST_CASE("WandbSink: rows at every place of a block are read", "[telemetry][wandb]") {
  SinkRun run;
  WandbSink sink({});
  run.begin(sink, first_attempt, 1000);
  constexpr std::int64_t num_rows = 3000;
  for (std::int64_t step = 1; step <= num_rows; ++step) {
    run.log(sink, "train", step,
            values_of({{std::string(static_cast<std::size_t>(step % 37) + 1, 'a'), 1.0 / static_cast<double>(step)}}),
            1000);
  }
  sink.end({.status = "finished", .error = "", .global_step = num_rows, .metrics = {}, .time = 1002});
  const json got = upload(offline_runs(run.dir())[0]);
  if (got.is_null()) {
    return;
  }
  REQUIRE(got["history"].size() == num_rows);
  bool equal = true;
  for (std::int64_t step = 1; step <= num_rows; ++step) {
    equal = equal && got["history"][static_cast<std::size_t>(step - 1)]
                        ["train_step/" + std::string(static_cast<std::size_t>(step % 37) + 1, 'a')] ==
                         1.0 / static_cast<double>(step);
  }
  CHECK(equal);
}

TEST_CASE("WandbSink: a run that resumes goes on in its directory, without repeated or missing rows",
          "[telemetry][wandb]") {
  SinkRun run;
  {
    WandbSink sink({});
    run.begin(sink, first_attempt, 1000);
    for (std::int64_t step = 1; step <= 5; ++step) {
      run.log(sink, "train", step, values_of({{"loss", static_cast<double>(step)}}),
              1000.0 + static_cast<double>(step));
    }
    sink.end({.status = "stopped", .error = "", .global_step = 5, .metrics = {}, .time = 1010});
  }
  const auto directory = offline_runs(run.dir())[0];
  const json before = upload(directory);
  {
    WandbSink sink({});
    run.begin(sink, second_attempt, 2000, 3);
    run.log(sink, "train", 4, values_of({{"loss", 40}}), 2004);
    run.begin(sink, second_attempt, 2000, 2);  // a roll-back
    run.log(sink, "train", 4, values_of({{"loss", 400}}), 2004);
    run.log(sink, "train", 5, values_of({{"loss", 500}}), 2005);
    sink.end({.status = "finished", .error = "", .global_step = 5, .metrics = {}, .time = 2010});
  }
  CHECK(offline_runs(run.dir()) == std::vector<fs::path>{directory});
  const json after = upload(directory);  // which wandb refuses to a run that is marked as uploaded
  if (after.is_null()) {
    return;
  }
  CHECK(before["exitcode"] == 255);
  CHECK(before["history"].size() == 5);
  std::vector<std::pair<int, double>> rows;
  for (const json& row : after["history"]) {
    rows.emplace_back(row["_step"].get<int>(), row["train_step/loss"].get<double>());
  }
  CHECK(rows == std::vector<std::pair<int, double>>{{1, 1}, {2, 2}, {4, 400}, {5, 500}});
  CHECK(after["exitcode"] == 0);
  CHECK(after["run"]["name"] == first_id);
  CHECK(after["history"][3]["_runtime"] == 1004.0);  // since the first record of the first attempt
}

TEST_CASE("WandbSink: a run that starts afresh is another one, and leaves the earlier one alone",
          "[telemetry][wandb]") {
  SinkRun run;
  WandbSink sink({});
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
  sink.end({.status = "finished", .error = "", .global_step = 1, .metrics = {}, .time = 1002});
  const auto first = offline_runs(run.dir())[0];
  const std::string bytes = read_file(first / (std::string("run-") + first_id + ".wandb"));
  run.begin(sink, second_attempt, 2000);
  run.log(sink, "train", 1, values_of({{"loss", 2}}), 2001);
  sink.end({.status = "finished", .error = "", .global_step = 1, .metrics = {}, .time = 2002});
  CHECK(offline_runs(run.dir()).size() == 2);
  CHECK(read_file(first / (std::string("run-") + first_id + ".wandb")) == bytes);
}

TEST_CASE("WandbSink: an attempt that dies while it reads metrics.jsonl leaves the older file", "[telemetry][wandb]") {
  SinkRun run;
  {
    WandbSink sink({});
    run.begin(sink, first_attempt, 1000);
    run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
    run.log(sink, "train", 2, values_of({{"loss", 2}}), 1002);
  }
  const auto directory = offline_runs(run.dir())[0];
  const fs::path file = directory / (std::string("run-") + first_id + ".wandb");
  const std::string bytes = read_file(file);
  {
    WandbSink sink({});
    run.info().lines = 2;
    run.info().timestamp = second_attempt;
    CHECK(sink.begin(run.info()) == 0);
    danling::read_metrics_lines(run.info().metrics_file, 0, 1,
                                [&](const danling::ScalarRecord& record) { sink.scalars(record); });
    sink.flush();
    CHECK(read_file(file) == bytes);
    CHECK(names_in(directory).size() == 3);
  }
  CHECK(read_file(file) == bytes);
  CHECK(names_in(directory) == std::vector<std::string>{"files", file.filename().string()});
}

TEST_CASE("WandbSink: after a full disk the same records are written once", "[telemetry][wandb]") {
  SinkRun run;
  WandbSink sink({});
  run.begin(sink, first_attempt, 1000);
  const auto directory = offline_runs(run.dir())[0];
  const fs::path file = directory / (std::string("run-") + first_id + ".wandb");
  run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
  const auto next = run.append("train", 2, values_of({{"loss", 2}}), 1002);
  const auto last = run.append("train", 3, values_of({{"loss", 3}}), 1003);
  sink.scalars(next);
  const EndRecord end{.status = "finished", .error = "", .global_step = 3, .metrics = {}, .time = 1004};
  const auto size = fs::file_size(file);
  for (int i = 0; i < 2; ++i) {
    const FileSizeLimit full(size + 10);
    CHECK(error_of<danling::Error>([&] { sink.scalars(last); }) ==
          "[sink.write] expected to write " + file.string() + ", got 'File too large'");
    CHECK(fs::file_size(file) == size);
  }
  sink.scalars(last);
  {
    const FileSizeLimit full(fs::file_size(file) + 10);
    CHECK_THROWS_AS(sink.end(end), danling::Error);
  }
  sink.end(end);
  const json got = upload(directory);
  if (got.is_null()) {
    return;
  }
  REQUIRE(got["history"].size() == 3);
  CHECK(got["history"][1]["train_step/loss"] == 2.0);
  CHECK(got["history"][2]["train_step/loss"] == 3.0);
}

TEST_CASE("WandbSink: a removed directory comes back with all that was written", "[telemetry][wandb]") {
  SinkRun run;
  WandbSink sink({});
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
  run.log(sink, "train", 2, values_of({{"loss", 2}}), 1002);
  sink.flush();
  const fs::path file = offline_runs(run.dir())[0] / (std::string("run-") + first_id + ".wandb");
  const std::string bytes = read_file(file);
  fs::remove_all(run.dir() / "wandb");
  sink.flush();
  CHECK(read_file(file) == bytes);
}

TEST_CASE("WandbSink: modes and directories that cannot be are refused", "[telemetry][wandb]") {
  CHECK(
      error_of<danling::ConfigError>([] { WandbSink({.mode = "online"}); }) ==
      "[wandb.mode] expected offline or disabled, got 'online'; the run is written offline, and `wandb sync DIRECTORY` "
      "uploads it");
  SinkRun run;
  WandbSink disabled({.mode = "disabled"});
  run.begin(disabled, first_attempt, 1000);
  run.log(disabled, "train", 1, values_of({{"loss", 1}}), 1001);
  disabled.flush();
  disabled.end({.status = "finished", .error = "", .global_step = 1, .metrics = {}, .time = 1002});
  CHECK(names_in(run.dir()) == std::vector<std::string>{"metrics.jsonl"});

  danling_test::write_file(run.dir() / "file", "");
  WandbSink nowhere({.dir = run.dir() / "file"});
  CHECK_THROWS_AS(nowhere.begin(run.info()), danling::Error);
  run.info().dir.clear();
  WandbSink none({});
  CHECK(error_of<danling::ConfigError>([&] { none.begin(run.info()); }) ==
        "[wandb.begin] expected a directory for the offline run, got `record: false` without wandb.dir; set wandb.dir");
}

}  // namespace wandb_test
