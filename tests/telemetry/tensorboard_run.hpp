// A run that writes TensorBoard's event files: its attempts and records, and the files as TensorBoard reads them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/telemetry/tensorboard_sink.hpp>

#include <support/catch.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace tensorboard_test {

namespace fs = std::filesystem;
using danling::RunInfo;
using danling::ScalarRecord;
using danling::TensorBoardSink;
using danling_test::read_file;
using danling_test::TempDir;

// Attempt `n` of a run, from 1.
inline RunInfo attempt(const fs::path& dir, int n = 1, std::int64_t lines = 0, std::int64_t global_step = 0) {
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
inline ScalarRecord boundary(std::int64_t line, double loss) {
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

inline danling::HistogramRecord weights(std::int64_t lines_before, std::int64_t global_step) {
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

inline std::vector<fs::path> event_files(const fs::path& directory) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(directory)) {
    out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Returns the JSON that TensorBoard reads, or null without TensorBoard. `before`: an earlier state of the run.
inline nlohmann::json read_with_tensorboard(const fs::path& run, const TempDir& dir, const std::string& before = "") {
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

// [step, value] of a tag, by either reader.
inline std::string points(const nlohmann::json& reader, const std::string& tag) {
  std::string out;
  for (const auto& point : reader["scalars"].value(tag, nlohmann::json::array())) {
    out += point[0].dump() + ":" + point[1].dump() + " ";
  }
  return out;
}

}  // namespace tensorboard_test
