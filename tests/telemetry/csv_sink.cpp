// CsvSink: columns, exact numbers, resume, failures.
#include <danling/telemetry/csv_sink.hpp>

#include <cmath>
#include <fstream>
#include <limits>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>
#include <support/temp_dir.hpp>

namespace {

danling::ScalarRecord csv_record(std::int64_t step, std::vector<std::pair<std::string, double>> numbers) {
  danling::ScalarRecord out{.split = "train", .mode = "train", .epoch = 0, .global_step = step, .iteration = step};
  for (const auto& [name, number] : numbers) {
    out.values.set(name, number);
  }
  return out;
}

}  // namespace

TEST_CASE("CsvSink: a row per record, and a further column for a new name", "[telemetry][sinks]") {
  const danling_test::TempDir folder;
  danling::CsvSink sink(folder / "metrics.csv");
  CHECK(sink.begin({.lines = 7}) == 0);  // all are wanted again
  sink.scalars(csv_record(1, {{"loss", 0.1}, {"a,\"b\"\nc", 1.0}}));
  auto second = csv_record(2, {{"loss", 1.0 / 3.0}, {"acc", std::numeric_limits<double>::infinity()}});
  second.values["losses"].set("mse", std::nan(""));
  second.telemetry.set("time", 0.25);
  second.split = "val, new";
  second.iteration.reset();
  sink.scalars(second);
  CHECK(danling_test::read_file(folder / "metrics.csv") ==
        "split,mode,epoch,global_step,iteration,loss,\"a,\"\"b\"\"\nc\",acc,losses.mse,telemetry.time\n"
        "train,train,0,1,1,0.1,1,,,\n"
        "\"val, new\",train,0,2,,0.3333333333333333,,inf,nan,0.25\n");
  const auto table = danling::formats::read_csv(folder / "metrics.csv");
  CHECK(table.column("loss").floats()[1] == 1.0 / 3.0);
}

TEST_CASE("CsvSink: a run that begins again writes the file anew", "[telemetry][sinks]") {
  const danling_test::TempDir folder;
  danling::CsvSink sink(folder / "metrics.csv");
  sink.begin({});
  sink.scalars(csv_record(1, {{"loss", 0.5}}));
  sink.begin({.lines = 1});
  sink.scalars(csv_record(1, {{"loss", 0.25}}));
  CHECK(danling_test::read_file(folder / "metrics.csv") ==
        "split,mode,epoch,global_step,iteration,loss\ntrain,train,0,1,1,0.25\n");
}

TEST_CASE("CsvSink: a full disk keeps whole rows, and the next attempt goes on", "[telemetry][sinks]") {
  const danling_test::TempDir folder;
  danling::CsvSink sink(folder / "metrics.csv");
  sink.begin({});
  sink.scalars(csv_record(1, {{"loss", 0.5}}));
  const std::string before = danling_test::read_file(folder / "metrics.csv");
  {
    const danling_test::FileSizeLimit limit(before.size() + 3);
    CHECK(danling_test::error_of<danling::Error>([&] { sink.scalars(csv_record(2, {{"loss", 0.25}})); }) ==
          danling::detail::concat("[sink.write] expected to write ", (folder / "metrics.csv").string(),
                                  ", got 'File too large'"));
  }
  CHECK(danling_test::read_file(folder / "metrics.csv") == before);
  sink.scalars(csv_record(2, {{"loss", 0.25}}));
  CHECK(danling_test::read_file(folder / "metrics.csv") == before + "train,train,0,2,2,0.25\n");
}

TEST_CASE("CsvSink: a further column keeps long and quoted rows, and drops a cut one behind them",
          "[telemetry][sinks]") {
  const danling_test::TempDir folder;
  danling::CsvSink sink(folder / "metrics.csv");
  sink.begin({});
  auto record = csv_record(1, {{"loss", 0.5}});
  record.split = std::string(1U << 20U, 's') + "\n\"t\"";  // longer than a block
  sink.scalars(record);
  sink.scalars(csv_record(2, {{"loss", 0.5}}));
  std::ofstream(folder / "metrics.csv", std::ios::app) << "train,tr";
  sink.scalars(csv_record(3, {{"loss", 1}, {"acc", 1}}));
  CHECK(danling_test::read_file(folder / "metrics.csv") ==
        "split,mode,epoch,global_step,iteration,loss,acc\n\"" + std::string(1U << 20U, 's') +
            "\n\"\"t\"\"\",train,0,1,1,0.5,\ntrain,train,0,2,2,0.5,\ntrain,train,0,3,3,1,1\n");
}

TEST_CASE("CsvSink: a removed directory comes back with all rows", "[telemetry][sinks]") {
  const danling_test::TempDir folder;
  danling::CsvSink sink(folder / "run" / "metrics.csv");
  sink.begin({});
  sink.scalars(csv_record(1, {{"loss", 0.5}}));
  std::filesystem::remove_all(folder / "run");
  sink.scalars(csv_record(2, {{"loss", 0.25}}));
  CHECK(danling_test::read_file(folder / "run" / "metrics.csv") ==
        "split,mode,epoch,global_step,iteration,loss\ntrain,train,0,1,1,0.5\ntrain,train,0,2,2,0.25\n");
  std::filesystem::remove_all(folder / "run");
  sink.scalars(csv_record(3, {{"loss", 1}, {"acc", 1}}));  // with a new column
  CHECK(danling_test::read_file(folder / "run" / "metrics.csv") ==
        "split,mode,epoch,global_step,iteration,loss,acc\ntrain,train,0,1,1,0.5,\ntrain,train,0,2,2,0.25,\n"
        "train,train,0,3,3,1,1\n");
}
