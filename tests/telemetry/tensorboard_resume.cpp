// Event files of runs that resume or go back: what TensorBoardSink cuts off, and the curves that continue.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <danling/formats/detail/protobuf.hpp>
#include <danling/formats/event_file.hpp>
#include <danling/telemetry/tensorboard_sink.hpp>

#include <support/temp_dir.hpp>

#include "tensorboard_run.hpp"

namespace tensorboard_test {
namespace {

using danling_test::write_file;

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

}  // namespace
}  // namespace tensorboard_test
