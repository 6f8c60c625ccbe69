#include <danling/telemetry/mlflow.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <telemetry/sink_run.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>

namespace mlflow_test {

using danling::EndRecord;
using danling::MlflowSink;
using danling::Result;
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

EndRecord end_of(const std::string& status, double time) {
  return {
      .status = status, .error = status == "crashed" ? "[step] é" : "", .global_step = 3, .metrics = {}, .time = time};
}

/// Runs tests/golden/mlflow_store.py; says whether there is a Python that has mlflow.
bool mlflow(const std::string& command, const fs::path& store, const std::string& arguments = "") {
  const auto python = python_with("mlflow");
  if (python) {
    const TempDir out;
    run_script("mlflow_store.py", command + " '" + store.string() + "' " + arguments, out / "log");
  }
  return python.has_value();
}

/// All runs by experiment; null without a Python that has mlflow.
json read_store(const fs::path& store) {
  const TempDir out;
  return mlflow("read", store, "'" + (out / "out.json").string() + "'") ? json::parse(read_file(out / "out.json"))
                                                                        : json(nullptr);
}

/// The file of metric train_step/loss of the only run.
fs::path loss_file(const fs::path& store) {
  for (const auto& experiment : fs::directory_iterator(store)) {
    const fs::path file = experiment.path() / first_id / "metrics" / "train_step" / "loss";
    if (fs::exists(file)) {
      return file;
    }
  }
  return {};
}

TEST_CASE("MlflowSink: mlflow reads every number, the options and the status", "[telemetry][mlflow]") {
  SinkRun run;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const fs::path store = run.dir() / "a store";
  MlflowSink sink({.directory = store, .git_commit = "0123abcd", .tags = {{"team", "é"}}});
  run.begin(sink, first_attempt, 1000.5);
  Result values = values_of({{"loss", 0.1}, {"nan", std::nan("")}, {"up", infinity}, {"down", -infinity}});
  values.set("tiny", 4.9406564584124654e-324);
  values.set("per_class", std::vector<double>{0.1 + 0.2, -1.7976931348623157e308});
  run.log(sink, "train", 1, values, 1001.25);
  run.log(sink, "train", 3, values_of({{"loss", 1e22}}), 1002);
  run.log(sink, "train", 3, values_of({{"loss", 3}}), 1003);
  sink.flush();
  const std::string running = read_file(loss_file(store).parent_path().parent_path().parent_path() / "meta.yaml");
  sink.end({.status = "finished", .error = "", .global_step = 3, .metrics = {{"val/loss", 2.0}}, .time = 1010.75});
  const json got = read_store(store);
  if (got.is_null()) {
    return;
  }
  CHECK(running.find("\nstatus: 1\n") != std::string::npos);  // RUNNING
  CHECK(running.find("\nend_time: null\n") != std::string::npos);
  CHECK(got["Default"].empty());
  REQUIRE(got["mnist"].size() == 1);
  const json& found = got["mnist"][first_id];
  CHECK(found["name"] == "1a2b3c4d-0123456789ab");
  CHECK(found["tags"]["danling.name"] == "digits");
  CHECK(found["status"] == "FINISHED");
  CHECK(found["start"] == 1000500);
  CHECK(found["end"] == 1010750);
  CHECK(found["params"] == json{{"optim.lr", "0.1"}, {"seed", "7"}});
  CHECK(found["tags"]["mlflow.source.git.commit"] == "0123abcd");
  CHECK(found["tags"]["team"] == "é");
  CHECK(found["tags"]["danling.id"] == "1a2b3c4d-0123456789ab");
  CHECK(found["artifacts"] == json::array({"config.yaml"}));
  const json expected = {{"train_step/loss", {{1001250, 0.1, 1}, {1002000, 1e22, 3}, {1003000, 3.0, 3}}},
                         {"train_step/nan", {{1001250, "nan", 1}}},
                         {"train_step/up", {{1001250, "inf", 1}}},
                         {"train_step/down", {{1001250, "-inf", 1}}},
                         {"train_step/tiny", {{1001250, 4.9406564584124654e-324, 1}}},
                         {"train_step/per_class/0", {{1001250, 0.1 + 0.2, 1}}},
                         {"train_step/per_class/1", {{1001250, -1.7976931348623157e308, 1}}},
                         {"telemetry/train_step/time", {{1001250, 0.125, 1}, {1002000, 0.125, 3}, {1003000, 0.125, 3}}},
                         {"results/val/loss", {{1010750, 2.0, 3}}}};
  CHECK(found["metrics"] == expected);
  CHECK(found["latest"]["train_step/loss"] == 3.0);
  mlflow("migrate", store);
}

TEST_CASE("MlflowSink: a run that resumes goes on in its directory, without repeated or missing points",
          "[telemetry][mlflow]") {
  SinkRun run;
  const fs::path store = run.dir() / "mlruns";
  {
    MlflowSink sink({.directory = store});
    run.begin(sink, first_attempt, 1000);
    for (std::int64_t step = 1; step <= 5; ++step) {
      run.log(sink, "train", step, values_of({{"loss", static_cast<double>(step)}}),
              1000.0 + static_cast<double>(step));
    }
    sink.end(end_of("crashed", 1010));
  }
  const json before = read_store(store);
  if (!before.is_null()) {
    mlflow("rename", store, std::string(first_id) + " mine");
  }
  {
    MlflowSink sink({.directory = store});
    run.begin(sink, second_attempt, 2000, 3);
    run.log(sink, "train", 4, values_of({{"loss", 40}}), 2004);
    sink.flush();
    run.begin(sink, second_attempt, 2000, 2);  // a roll-back
    run.log(sink, "train", 4, values_of({{"loss", 400}}), 2004);
    run.log(sink, "train", 5, values_of({{"loss", 500}}), 2005);
    sink.end(end_of("stopped", 2010));
  }
  const json after = read_store(store);
  if (after.is_null()) {
    return;
  }
  CHECK(before["mnist"][first_id]["status"] == "FAILED");
  CHECK(before["mnist"][first_id]["tags"]["danling.error"] == "[step] é");
  CHECK(before["mnist"][first_id]["metrics"]["train_step/loss"].size() == 5);
  REQUIRE(after["mnist"].size() == 1);
  const json& found = after["mnist"][first_id];
  CHECK(found["metrics"]["train_step/loss"] ==
        json({{1001000, 1.0, 1}, {1002000, 2.0, 2}, {2004000, 400.0, 4}, {2005000, 500.0, 5}}));
  CHECK(found["status"] == "KILLED");
  CHECK_FALSE(found["tags"].contains("danling.error"));
  CHECK(found["name"] == "mine");
  CHECK(found["start"] == 1000000);
  CHECK(found["end"] == 2010000);
}

TEST_CASE("MlflowSink: a run that starts afresh is another one", "[telemetry][mlflow]") {
  SinkRun run;
  const fs::path store = run.dir() / "mlruns";
  MlflowSink sink({.directory = store});
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
  sink.end(end_of("finished", 1002));
  run.begin(sink, second_attempt, 2000);
  run.log(sink, "train", 1, values_of({{"loss", 2}}), 2001);
  sink.end(end_of("finished", 2002));
  const json got = read_store(store);
  if (got.is_null()) {
    return;
  }
  CHECK(got["mnist"].size() == 2);
  CHECK(got["mnist"][first_id]["metrics"]["train_step/loss"] == json::array({{1001000, 1.0, 1}}));
}

TEST_CASE("MlflowSink: hostile names reach mlflow as names that it accepts, apart from each other",
          "[telemetry][mlflow]") {
  SinkRun run;
  const fs::path store = run.dir() / "mlruns";
  run.info().hparams = {{"../../x", "1"},         {"a", "2"},    {"a/b", "3"},
                        {"note", "two\nlines\n"}, {"empty", ""}, {"long", std::string(5998, 'v') + "ééé"}};
  MlflowSink sink({.directory = store, .experiment = "é/../\"x\": [1]", .name = "../é\n\xff"});
  run.begin(sink, first_attempt, 1000);
  const std::string name(1000, 'n');
  run.log(sink, "..", 1,
          values_of({{"x", 1},
                     {"a.b/c d:e", 2},
                     {name + "1", 3},
                     {name + "2", 4},
                     {"é", 5},
                     {"è", 6},
                     {"", 7},
                     {"//", 8},
                     {"v", 9},
                     {"v/w", 10},
                     {"q/r", 11},
                     {"q", 12},
                     {"q/../r", 13},
                     {"\xff", 14}}),
          1001);
  run.log(sink, "..", 2, values_of({{"v/w", 15}}), 1002);
  sink.end(end_of("finished", 1003));
  CHECK_FALSE(fs::exists(store.parent_path() / "x"));
  const json got = read_store(store);
  if (got.is_null()) {
    return;
  }
  REQUIRE(got["é/../\"x\": [1]"].size() == 1);
  const json& found = got["é/../\"x\": [1]"][first_id];
  CHECK(found["name"] == "../é\n\xEF\xBF\xBD");
  std::vector<double> values;
  for (const auto& [key, points] : found["metrics"].items()) {
    INFO(key);
    for (const json& point : points) {
      if (!key.ends_with("time") && key.find("time-") == std::string::npos) {
        values.push_back(point[1].get<double>());
      }
    }
  }
  std::sort(values.begin(), values.end());
  CHECK(values == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(found["params"].size() == 6);
  CHECK(found["params"]["a"] == "2");
  CHECK(found["params"]["note"] == "two\nlines\n");
  CHECK(found["params"]["empty"] == "");
  CHECK(found["params"]["long"] == std::string(5997, 'v') + "...");
  mlflow("migrate", store);
}

TEST_CASE("MlflowSink: processes that begin at the same time share one experiment", "[telemetry][mlflow]") {
  const TempDir dir;
  const fs::path store = dir / "mlruns";
  constexpr int num_runs = 6;
  std::vector<std::unique_ptr<danling_test::Child>> children;
  for (int i = 0; i < num_runs; ++i) {
    children.push_back(std::make_unique<danling_test::Child>([&, i](const auto& ready) {
      SinkRun run(dir.path());
      run.info().id = "run" + std::to_string(i);
      MlflowSink sink({.directory = store});
      ready();
      run.begin(sink, first_attempt, 1000);
      for (std::int64_t step = 1; step <= 100; ++step) {
        run.log(sink, "train", step, values_of({{"loss", i}}), 1001);
        sink.flush();
      }
      sink.end(end_of("finished", 1002));
      return 0;
    }));
  }
  for (const auto& child : children) {
    CHECK(child->wait() == 0);
  }
  const json got = read_store(store);
  if (got.is_null()) {
    return;
  }
  CHECK(got.size() == 2);
  REQUIRE(got["mnist"].size() == num_runs);
  for (const auto& [id, run] : got["mnist"].items()) {
    CHECK(run["metrics"]["train_step/loss"].size() == 100);
    CHECK(run["status"] == "FINISHED");
  }
}

TEST_CASE("MlflowSink: goes into an experiment that mlflow made, and not into one that it deleted",
          "[telemetry][mlflow]") {
  SinkRun run;
  const fs::path store = run.dir() / "mlruns";
  if (!mlflow("create", store, "shared")) {
    return;
  }
  mlflow("create", store, "gone");
  mlflow("delete", store, "gone");
  MlflowSink sink({.directory = store, .experiment = "shared"});
  run.begin(sink, first_attempt, 1000);
  sink.end(end_of("finished", 1001));
  CHECK(read_store(store)["shared"].size() == 2);
  MlflowSink refused({.directory = store, .experiment = "gone"});
  const std::string message = error_of<danling::ConfigError>([&] { refused.begin(run.info()); });
  CHECK(message.starts_with("[mlflow.begin] expected an experiment that is not deleted, got 'gone' ("));
  CHECK(message.ends_with("restore it with `mlflow experiments restore`, or set mlflow.experiment to another name"));
}

TEST_CASE("MlflowSink: after a full disk the same records are written once", "[telemetry][mlflow]") {
  SinkRun run;
  const fs::path store = run.dir() / "mlruns";
  MlflowSink sink({.directory = store});
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
  sink.flush();
  const fs::path file = loss_file(store);
  const std::string bytes = read_file(file);
  CHECK(bytes == "1001000 1.0 1\n");
  run.log(sink, "train", 2, values_of({{"loss", 2}}), 1002);
  for (int i = 0; i < 2; ++i) {
    const FileSizeLimit full(bytes.size() + 3);
    CHECK(error_of<danling::Error>([&] { sink.flush(); }) ==
          "[sink.write] expected to write " +
              (file.parent_path().parent_path() / "telemetry/train_step/time").string() + ", got 'File too large'");
    CHECK_THROWS_AS(sink.end(end_of("finished", 1003)), danling::Error);
    CHECK(read_file(file) == bytes);
  }
  sink.end(end_of("finished", 1003));
  CHECK(read_file(file) == "1001000 1.0 1\n1002000 2.0 2\n");
}

TEST_CASE("MlflowSink: a removed store comes back from metrics.jsonl", "[telemetry][mlflow]") {
  SinkRun run;
  const fs::path store = run.dir() / "mlruns";
  MlflowSink sink({.directory = store});
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
  sink.flush();
  fs::remove_all(store);
  run.log(sink, "train", 2, values_of({{"loss", 2}}), 1002);
  danling_test::write_file(store, "");  // in the way
  CHECK_THROWS_AS(sink.flush(), danling::Error);
  const auto next = run.append("train", 3, values_of({{"loss", 3}}), 1003);
  CHECK_THROWS_AS(sink.scalars(next), danling::Error);
  fs::remove(store);
  sink.scalars(next);
  sink.end(end_of("finished", 1004));
  CHECK(read_file(loss_file(store)) == "1001000 1.0 1\n1002000 2.0 2\n1003000 3.0 3\n");
}

TEST_CASE("MlflowSink: an attempt that dies while it reads metrics.jsonl leaves the older points",
          "[telemetry][mlflow]") {
  SinkRun run;
  const fs::path store = run.dir() / "mlruns";
  {
    MlflowSink sink({.directory = store});
    run.begin(sink, first_attempt, 1000);
    run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
    run.log(sink, "train", 2, values_of({{"loss", 2}}), 1002);
    sink.flush();
  }
  {
    MlflowSink sink({.directory = store});
    run.info().lines = 2;
    CHECK(sink.begin(run.info()) == 0);
    danling::read_metrics_lines(run.info().metrics_file, 0, 1,
                                [&](const danling::ScalarRecord& record) { sink.scalars(record); });
    sink.flush();
  }
  CHECK(read_file(loss_file(store)) == "1001000 1.0 1\n1002000 2.0 2\n");
}

TEST_CASE("MlflowSink: begins once its store can be written", "[telemetry][mlflow]") {
  SinkRun run;
  danling_test::write_file(run.dir() / "file", "");
  MlflowSink sink({.directory = run.dir() / "file" / "mlruns"});
  CHECK(error_of<danling::Error>([&] {
          sink.begin(run.info());
        }).starts_with("[workspace.ensure_dir] expected a directory '" + (run.dir() / "file" / "mlruns").string()));
  sink.flush();
  fs::remove(run.dir() / "file");
  run.begin(sink, first_attempt, 1000);
  run.log(sink, "train", 1, values_of({{"loss", 1}}), 1001);
  sink.end(end_of("finished", 1002));
  CHECK(read_file(loss_file(run.dir() / "file" / "mlruns")) == "1001000 1.0 1\n");
}

TEST_CASE("MlflowSink: a store is needed", "[telemetry][mlflow]") {
  CHECK(error_of<danling::ConfigError>([] { MlflowSink({}); }) ==
        "[mlflow.directory] expected the directory of a store, such as mlruns, got none");
}

}  // namespace mlflow_test
