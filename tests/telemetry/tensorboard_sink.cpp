// The bytes of TensorBoardSink, and what TensorBoard reads of them.
#include <danling/telemetry/tensorboard_sink.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

#include "tensorboard_run.hpp"

namespace tensorboard_test {
namespace {

using danling_test::error_of;

constexpr double tb_infinity = std::numeric_limits<double>::infinity();

ScalarRecord pass(const std::string& split, std::int64_t line, std::int64_t global_step, double loss) {
  ScalarRecord out = boundary(line, loss);
  out.split = split;
  out.mode = split == "train" ? "train" : "evaluate";
  out.global_step = global_step;
  out.iteration.reset();
  return out;
}

// The run of tests/golden/event_files.py.
fs::path write_golden_run(const fs::path& run) {
  TensorBoardSink sink;
  CHECK(sink.begin(attempt(run)) == 0);
  ScalarRecord first = boundary(1, 0.1);
  first.values.set("losses", std::vector<double>{2.0, -tb_infinity});
  first.values["part"].set("acc", 0.0);
  first.values.set("confusion", danling::Result::Array{{2, 2}, {1, 2, 3, 4}});
  first.telemetry.set("time", 0.25);
  first.time = 1700000001.25;
  sink.scalars(first);
  ScalarRecord progress = boundary(2, 0.4);
  progress.split = "val";
  progress.mode = "evaluate";
  sink.scalars(progress);
  sink.histogram(weights(1, 10));
  sink.text({.name = "note", .global_step = 10, .text = "*schön*", .time = 1700000002.5, .line = 1});
  sink.image({.name = "sample",
              .global_step = 10,
              .width = 3,
              .height = 2,
              .channels = 1,
              .png = read_file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/data/images.json").substr(0, 40),
              .time = 1700000002.75,
              .line = 1});
  ScalarRecord last = pass("val", 2, 20, 0.3);
  last.time = 1700000003.0;
  sink.scalars(last);
  sink.end(
      {.status = "finished", .error = "", .global_step = 20, .metrics = {{"val/loss", 0.3}}, .time = 1700000004.0});
  return sink.directory();
}

TEST_CASE("TensorBoardSink: the bytes of TensorBoard's own messages and record writer", "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto directory = write_golden_run(dir / "run");
  CHECK(directory == dir / "run/tensorboard/20260101-000001-000000");
  const auto files = event_files(directory);
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename() == "events.out.tfevents.1700000000.danling");
  CHECK(read_file(files[0]) == read_file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/data/events/run"));
}

TEST_CASE("TensorBoardSink: TensorBoard reads every value, as float32, and its fast data server too",
          "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto directory = write_golden_run(dir / "run");
  const auto read = read_with_tensorboard(directory, dir);
  if (read.is_null()) {
    return;
  }
  using nlohmann::json;
  const auto& files = read["files"];
  CHECK(files["writer"] == "danling");
  const json scalars = {{"train_step/loss", {{10, static_cast<double>(0.1F), 1700000001.25}}},
                        {"train_step/losses/0", {{10, 2.0, 1700000001.25}}},
                        {"train_step/losses/1", {{10, "-inf", 1700000001.25}}},
                        {"train_step/part/acc", {{10, 0.0, 1700000001.25}}},
                        {"telemetry/train_step/time", {{10, 0.25, 1700000001.25}}},
                        {"nonfinite/weights/fc", {{10, 3.0, 1700000002.25}}},
                        {"val/loss", {{20, static_cast<double>(0.3F), 1700000003.0}}},
                        {"results/val/loss", {{20, static_cast<double>(0.3F), 1700000004.0}}}};
  CHECK(files["scalars"] == scalars);
  // min, max, num, sum, sum_squares, limits, counts
  CHECK(files["histograms"] == json::parse(R"({"weights/fc": [[10, 1700000002.25, -1.5, 2.5, 4.0, 2.25, 9.5,
      [0.5, 2.5], [3.0, 1.0]]]})"));
  CHECK(files["texts"] ==
        json::parse(R"({"config": [[0, "```yaml\noptim:\n  lr: 0.001\n```\n"]], "note": [[10, "*schön*"]]})"));
  CHECK(files["images"]["sample"][0][0] == 10);
  CHECK(files["images"]["sample"][0][1] == 3);
  CHECK(files["images"]["sample"][0][2] == 2);
  CHECK(files["hparams"] == json::parse(R"({
      "_hparams_/session_start_info": {"sessionStartInfo": {"startTimeSecs": 1700000000.5,
          "hparams": {"bias": true, "network": "mlp", "optim.lr": 0.001}}},
      "_hparams_/session_end_info": {"sessionEndInfo": {"status": "STATUS_SUCCESS", "endTimeSecs": 1700000004.0}}})"));
  const auto& server = read["server"];
  if (server.is_null()) {
    WARN("TensorBoard's data server is not installed");
    return;
  }
  CHECK(server["scalars"] == scalars);
  CHECK(server["texts"] == files["texts"]);
  CHECK(server["histograms"] == json::parse(R"({"weights/fc": [[10, [[-1.5, 0.5, 3.0], [0.5, 2.5, 1.0]]]]})"));
  CHECK(server["images"] == json::parse(R"({"sample": [10]})"));
  CHECK(server["hparams"] == json::parse(R"(["_hparams_/session_end_info", "_hparams_/session_start_info"])"));
}

TEST_CASE("TensorBoardSink: a fresh start has a directory of its own", "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto run = dir / "run";
  const auto first = write_golden_run(run);
  const std::string before = read_file(event_files(first)[0]);
  TensorBoardSink sink;
  CHECK(sink.begin(attempt(run, 2)) == 0);
  CHECK(sink.directory() == run / "tensorboard/20260101-000002-000000");
  CHECK(read_file(event_files(first)[0]) == before);
  CHECK(sink.begin(attempt(run, 2)) == 0);  // a roll-back to its start
  CHECK(event_files(sink.directory()).size() == 2);

  RunInfo unrecorded = attempt({});
  CHECK(error_of<danling::ConfigError>([&] { TensorBoardSink().begin(unrecorded); }) ==
        "[tensorboard.begin] expected a run with a directory, got one with record: false");
  CHECK(error_of<danling::StateError>([&] { TensorBoardSink().scalars(boundary(1, 1)); }) ==
        "[tensorboard.append] expected begin() before the first record, got none");
}

TEST_CASE("TensorBoardSink: text that is not UTF-8 does not spoil the file", "[telemetry][tensorboard]") {
  const TempDir dir;
  TensorBoardSink sink;
  RunInfo run = attempt(dir / "run");
  run.hparams = {{"name", "caf\xe9"}, {"ratio", "nan"}, {"steps", "1e3"}};
  run.config = "name: caf\xe9";
  sink.begin(run);
  ScalarRecord record = boundary(1, 1);
  record.values.set("\xff", 2.0);
  sink.scalars(record);
  const auto read = read_with_tensorboard(sink.directory(), dir);
  if (read.is_null()) {
    return;
  }
  CHECK(points(read["files"], "train_step/\xef\xbf\xbd") == "10:2.0 ");
  CHECK(read["files"]["texts"]["config"][0][1] == "```yaml\nname: caf\xef\xbf\xbd\n```\n");
  CHECK(read["files"]["hparams"]["_hparams_/session_start_info"]["sessionStartInfo"]["hparams"] ==
        nlohmann::json::parse(R"({"name": "caf\ufffd", "ratio": "nan", "steps": 1000.0})"));
}

}  // namespace
}  // namespace tensorboard_test
