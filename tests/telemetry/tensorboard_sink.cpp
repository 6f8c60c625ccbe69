#include <danling/telemetry/tensorboard_sink.hpp>

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/formats/detail/protobuf.hpp>
#include <danling/formats/event_file.hpp>

#include <support/catch.hpp>
#include <support/child.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace fs = std::filesystem;
using danling::EndRecord;
using danling::RunInfo;
using danling::ScalarRecord;
using danling::TensorBoardSink;
using danling_test::error_of;
using danling_test::FileSizeLimit;
using danling_test::read_file;
using danling_test::TempDir;
using danling_test::write_file;

constexpr double tb_infinity = std::numeric_limits<double>::infinity();

// Attempt `n` of a run, from 1.
RunInfo attempt(const fs::path& dir, int n = 1, std::int64_t lines = 0, std::int64_t global_step = 0) {
  RunInfo out;
  out.name = "lin";
  out.id = "3b6c72ef4c6b";
  out.timestamp = "20260101-00000" + std::to_string(n) + "-000000";
  out.dir = dir;
  out.config = "optim:\n  lr: 0.001\n";
  out.hparams = {{"bias", "true"}, {"network", "mlp"}, {"optim.lr", "0.001"}};
  out.time = 1700000000.5 + 100 * (n - 1);
  out.lines = lines;
  out.global_step = global_step;
  return out;
}

// Line `line` of a run with a boundary every 10 steps.
ScalarRecord boundary(std::int64_t line, double loss) {
  ScalarRecord out;
  out.split = "train";
  out.mode = "train";
  out.epoch = 0;
  out.global_step = 10 * line;
  out.iteration = 10 * line;
  out.values.set("loss", loss);
  out.time = 1700000000.0 + static_cast<double>(line);
  out.line = line;
  return out;
}

ScalarRecord pass(const std::string& split, std::int64_t line, std::int64_t global_step, double loss) {
  ScalarRecord out = boundary(line, loss);
  out.split = split;
  out.mode = split == "train" ? "train" : "evaluate";
  out.global_step = global_step;
  out.iteration.reset();
  return out;
}

danling::HistogramRecord weights(std::int64_t lines_before, std::int64_t global_step) {
  danling::HistogramRecord out;
  out.name = "weights/fc";
  out.global_step = global_step;
  out.histogram = {.min = -1.5,
                   .max = 2.5,
                   .sum = 2.25,
                   .sum_of_squares = 9.5,
                   .count = 4,
                   .nonfinite = 3,
                   .limits = {0.5, 2.5},
                   .counts = {3, 1}};
  out.time = 1700000002.25;
  out.line = lines_before;
  return out;
}

std::vector<fs::path> event_files(const fs::path& directory) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(directory)) {
    out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// What TensorBoard reads, or nothing where there is none. `before`: an earlier state of the run.
nlohmann::json read_with_tensorboard(const fs::path& run, const TempDir& dir, const std::string& before = "") {
  if (danling_test::python_with_torch().empty() || !danling_test::PythonServer::instance().can_import("tensorboard")) {
    WARN("skipped: no Python with torch and tensorboard; set DANLING_PYTHON");
    return {};
  }
  const auto output = dir / "read.json";
  std::vector<std::string> arguments = {run.parent_path().string(), run.filename().string(), output.string()};
  if (!before.empty()) {
    arguments.push_back(before);
  }
  REQUIRE(danling_test::run_python("tests/golden/tensorboard_read.py", arguments));
  return nlohmann::json::parse(read_file(output));
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

// [step, value] of a tag, by either reader.
std::string points(const nlohmann::json& reader, const std::string& tag) {
  std::string out;
  for (const auto& point : reader["scalars"].value(tag, nlohmann::json::array())) {
    out += point[0].dump() + ":" + point[1].dump() + " ";
  }
  return out;
}

// The events of lines (by their number) and others (by their step, behind an h) of each file.
std::vector<std::string> events_in(const fs::path& directory) {
  std::vector<std::string> out;
  for (const auto& file : event_files(directory)) {
    danling::formats::EventFileReader reader(file);
    std::string events;
    while (const auto event = reader.next_event()) {
      events += event->line           ? std::to_string(*event->line) + " "
                : event->lines_before ? "h" + std::to_string(event->step) + " "
                                      : "";
    }
    out.push_back(events);
  }
  return out;
}

TEST_CASE("TensorBoardSink: what a step made after the checkpoint of its global step is cut off",
          "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto run = dir / "run";
  TensorBoardSink sink;
  sink.begin(attempt(run));
  sink.scalars(boundary(1, 1));
  sink.histogram(weights(1, 10));  // after update 10, before the checkpoint
  auto made_by_step = weights(1, 10);
  made_by_step.in_step = true;
  sink.histogram(made_by_step);  // by the step that the run makes again
  danling::RunInfo resumed = attempt(run);
  resumed.lines = 1;
  resumed.global_step = 10;
  sink.begin(resumed);
  const auto events = events_in(sink.directory());
  CHECK(events.front() == "1 h10 ");
}

TEST_CASE("TensorBoardSink: begin() cuts off what the run does not continue from, in its own files only",
          "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto run = dir / "run";
  TensorBoardSink sink;
  sink.begin(attempt(run));
  sink.scalars(boundary(1, 1));
  sink.histogram(weights(1, 10));
  sink.scalars(boundary(2, 2));
  sink.histogram(weights(2, 24));
  sink.histogram(weights(2, 28));
  sink.scalars(boundary(3, 3));
  using Events = std::vector<std::string>;
  CHECK(events_in(sink.directory()) == Events{"1 h10 2 h24 h28 3 "});

  // Another writer's file of such a name, which would be cut off were it of this class.
  std::string records;
  danling::formats::ProtobufWriter other, source;
  danling::formats::append_tfrecord(records, other.message(10, source.text(1, "another")).bytes());
  danling::formats::append_tfrecord(
      records, danling::formats::ProtobufWriter().integer(danling::formats::event_line_field, 7).bytes());
  const auto others = sink.directory() / "events.out.tfevents.1700000001.danling";
  write_file(others, records);

  CHECK(sink.begin(attempt(run, 1, 3, 30)) == 3);
  sink.scalars(boundary(4, 4));
  CHECK(sink.begin(attempt(run, 1, 4, 40)) == 4);
  sink.scalars(boundary(5, 5));
  CHECK(events_in(sink.directory()) == Events{"1 h10 2 h24 h28 3 ", "7 ", "4 ", "5 "});
  // Step 25 lies between two histograms with no line between them.
  CHECK(sink.begin(attempt(run, 1, 2, 25)) == 2);
  sink.histogram(weights(2, 28));
  sink.scalars(boundary(3, 33));
  CHECK(events_in(sink.directory()) == Events{"1 h10 2 h24 ", "7 ", "h28 3 "});
  CHECK(read_file(others) == records);
}

TEST_CASE("TensorBoardSink: a run that resumes continues its curves, no point repeated or missing",
          "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto run = dir / "run";
  fs::path directory;
  {
    TensorBoardSink sink;
    sink.begin(attempt(run));
    directory = sink.directory();
    sink.scalars(boundary(1, 1));
    sink.histogram(weights(1, 10));
    sink.scalars(boundary(2, 2));
    sink.histogram(weights(2, 24));
    sink.histogram(weights(2, 28));  // behind the checkpoint of step 25, although no line is between
    sink.scalars(boundary(3, 3));
    sink.scalars(boundary(4, 4));
    sink.end({.status = "crashed", .error = "no memory", .global_step = 45, .metrics = {{"val/loss", 9}}, .time = 0});
  }
  write_file(directory / "events.out.tfevents.1800000000.other.1.0", "of another writer");
  write_file(directory / "events.out.tfevents.1800000000.danling", "not what the name says");
  {
    TensorBoardSink sink;
    CHECK(sink.begin(attempt(run, 2, 2, 25)) == 2);
    CHECK(sink.directory() == directory);
    sink.histogram(weights(2, 28));
    sink.scalars(boundary(3, 33));
    sink.end({.status = "stopped", .error = "", .global_step = 33, .metrics = {{"val/loss", 8}}, .time = 0});
  }
  {
    // The last line of the second attempt is missing, as where the queue dropped it.
    TensorBoardSink sink;
    CHECK(sink.begin(attempt(run, 3, 4, 45)) == 3);
    sink.scalars(boundary(4, 44));
    sink.scalars(boundary(5, 55));
    // A roll-back.
    CHECK(sink.begin(attempt(run, 3, 4, 45)) == 4);
    sink.scalars(boundary(5, 555));
    sink.end({.status = "finished", .error = "", .global_step = 50, .metrics = {{"val/loss", 7}}, .time = 0});
  }
  CHECK(read_file(directory / "events.out.tfevents.1800000000.other.1.0") == "of another writer");
  CHECK(read_file(directory / "events.out.tfevents.1800000000.danling") == "not what the name says");
  fs::remove(directory / "events.out.tfevents.1800000000.other.1.0");
  fs::remove(directory / "events.out.tfevents.1800000000.danling");
  CHECK(event_files(run / "tensorboard").size() == 1);
  const auto read = read_with_tensorboard(directory, dir);
  if (read.is_null()) {
    return;
  }
  for (const auto* reader : {"files", "server"}) {
    if (!read[reader].is_null()) {
      INFO(reader);
      CHECK(points(read[reader], "train_step/loss") == "10:1.0 20:2.0 30:33.0 40:44.0 50:555.0 ");
      CHECK(points(read[reader], "results/val/loss") == "50:7.0 ");
      CHECK(points(read[reader], "nonfinite/weights/fc") == "10:3.0 24:3.0 28:3.0 ");
      CHECK(!read[reader]["texts"].contains("error"));
    }
  }
  CHECK(read["files"]["hparams"]["_hparams_/session_end_info"]["sessionEndInfo"]["status"] == "STATUS_SUCCESS");
}

TEST_CASE("TensorBoardSink: a TensorBoard that runs meanwhile drops the points that are written again",
          "[telemetry][tensorboard]") {
  const TempDir dir;
  TensorBoardSink sink;
  sink.begin(attempt(dir / "run"));
  for (std::int64_t line = 1; line <= 4; ++line) {
    sink.scalars(boundary(line, static_cast<double>(line)));
  }
  fs::copy(sink.directory(), dir / "before");
  sink.begin(attempt(dir / "run", 1, 2, 20));
  sink.scalars(boundary(3, 33));
  const auto read = read_with_tensorboard(sink.directory(), dir, (dir / "before").string());
  if (!read.is_null()) {
    CHECK(points(read["live"], "train_step/loss") == "10:1.0 20:2.0 30:33.0 ");
    CHECK(points(read["files"], "train_step/loss") == "10:1.0 20:2.0 30:33.0 ");
  }
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

TEST_CASE(
    "TensorBoardSink: a record that a killed process left half is cut off, and a damaged file where it is damaged",
    "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto run = dir / "run";
  fs::path directory;
  {
    TensorBoardSink sink;
    sink.begin(attempt(run));
    directory = sink.directory();
    sink.scalars(boundary(1, 1));
    sink.scalars(boundary(2, 2));
  }
  const auto file = event_files(directory)[0];
  const std::string whole = read_file(file);
  std::string head;
  {
    TensorBoardSink sink;
    sink.begin(attempt(dir / "other"));
    sink.scalars(boundary(1, 1));
    head = read_file(event_files(sink.directory())[0]);
  }
  REQUIRE(whole.substr(0, head.size()) == head);
  const auto held = [&](const std::string& content) {
    for (const auto& path : event_files(directory)) {
      fs::remove(path);
    }
    write_file(file, content);
    TensorBoardSink sink;
    const auto lines = sink.begin(attempt(run, 2, 2, 20));
    CHECK(read_file(file) == (lines == 2 ? whole : head));
    return lines;
  };
  CHECK(held(whole) == 2);
  for (std::size_t size = head.size(); size < whole.size(); ++size) {
    CHECK(held(whole.substr(0, size)) == 1);
  }
  std::string damaged = whole;
  damaged[head.size() + 20] = static_cast<char>(damaged[head.size() + 20] ^ 1);
  CHECK(held(damaged) == 1);

  danling_test::Child child([&](auto ready) {
    TensorBoardSink sink;
    sink.begin(attempt(dir / "killed"));
    for (std::int64_t line = 1;; ++line) {
      sink.scalars(boundary(line, 1));
      if (line == 100) {
        ready();
      }
    }
    return 0;
  });
  child.wait_ready();
  child.send(SIGKILL);
  CHECK(child.wait() == -SIGKILL);
  TensorBoardSink sink;
  CHECK(sink.begin(attempt(dir / "killed", 2, 1000000000, 1000000000)) >= 100);
}

TEST_CASE("TensorBoardSink: a full disk refuses a record, which is written once there is room",
          "[telemetry][tensorboard]") {
  const TempDir dir;
  const auto write = [&](const std::string& run, bool full) {
    TensorBoardSink sink;
    const fs::path directory = dir / run / "tensorboard/20260101-000001-000000";
    const std::string file = (directory / "events.out.tfevents.1700000000.danling").string();
    const std::string refused = "[sink.write] expected to write " + file + ", got 'File too large'";
    if (full) {
      const FileSizeLimit limit(100);
      CHECK(error_of<danling::Error>([&] { sink.begin(attempt(dir / run)); }) == refused);
      CHECK(event_files(directory).empty());
    }
    sink.begin(attempt(dir / run));
    sink.scalars(boundary(1, 1));
    if (full) {
      const FileSizeLimit limit(read_file(file).size() + 10);
      CHECK(error_of<danling::Error>([&] { sink.scalars(boundary(2, 2)); }) == refused);
      CHECK(error_of<danling::Error>([&] { sink.histogram(weights(2, 20)); }) == refused);
    }
    sink.scalars(boundary(2, 2));
    sink.histogram(weights(2, 20));
    return read_file(file);
  };
  CHECK(write("full", true) == write("undisturbed", false));
}

TEST_CASE("TensorBoardSink: a directory that vanishes is made anew with the attempt's events",
          "[telemetry][tensorboard]") {
  const TempDir dir;
  TensorBoardSink sink;
  sink.begin(attempt(dir / "run"));
  sink.scalars(boundary(1, 1));
  const auto file = event_files(sink.directory())[0];
  const std::string before = read_file(file);
  fs::remove_all(dir / "run");
  sink.scalars(boundary(2, 2));
  CHECK(read_file(file).substr(0, before.size()) == before);
  CHECK(read_file(file).size() > before.size());
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
