// TensorBoardSink where a process is killed, the disk is full, or the directory is removed.
#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include <danling/core/error.hpp>
#include <danling/telemetry/tensorboard_sink.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>
#include <support/temp_dir.hpp>

#include "tensorboard_run.hpp"

namespace tensorboard_test {
namespace {

using danling_test::error_of;
using danling_test::FileSizeLimit;
using danling_test::write_file;

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

}  // namespace
}  // namespace tensorboard_test
