#include <danling/telemetry/openmetrics.hpp>

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/telemetry/loopback_server.hpp>

#include <telemetry/sink_run.hpp>

#include <support/error.hpp>
#include <support/file_size_limit.hpp>

#include "telemetry/metric_families.hpp"

namespace openmetrics_test {

using danling::OpenMetricsSink;
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

constexpr const char* attempt = "20261231-235959-123456";

/// Null without a Python that has prometheus_client.
json parse(const std::string& format, const std::string& source) {
  const auto python = python_with("prometheus_client");
  if (!python) {
    return nullptr;
  }
  const TempDir out;
  run_script("prometheus_metrics.py", format + " '" + source + "' '" + (out / "out.json").string() + "'", out / "log");
  return json::parse(read_file(out / "out.json"));
}

/// The value of the only sample that has this name and, besides that of the run, these labels.
json value_of(const json& samples, const std::string& name, json labels) {
  labels["run"] = "1a2b3c4d-0123456789ab";
  json found;
  for (const json& sample : samples) {
    if (sample["name"] == name && sample["labels"] == labels) {
      CHECK(found.is_null());
      found = sample["value"];
    }
  }
  return found;
}

json entry_of(const json& samples, const std::string& name) {
  for (const json& sample : samples) {
    if (sample["name"] == name) {
      return sample;
    }
  }
  return nullptr;
}

TEST_CASE("OpenMetricsSink: Prometheus's client reads the latest values from the port and from the file",
          "[telemetry][openmetrics]") {
  SinkRun run;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  OpenMetricsSink sink({.port = 0, .file = run.dir() / "node" / "run.prom"});
  CHECK(sink.port() == 0);
  sink.set_total("samples", 640);
  run.begin(sink, attempt, 1000.5);
  run.log(sink, "train", 1, values_of({{"loss", 5}, {"gone", 1}}), 1001);
  run.log(sink, "train", 2,
          values_of({{"loss", 0.1 + 0.2},
                     {"nan", std::nan("")},
                     {"up", infinity},
                     {"down", -infinity},
                     {"tiny", 4.9406564584124654e-324}}),
          1002.25);
  run.log(sink, "val", 2, values_of({{"loss", 1e22}}), 1003);
  sink.set_total("dropped_records", 3);
  sink.end({.status = "finished", .error = "", .global_step = 2, .metrics = {}, .time = 1004});
  CHECK(read_file(run.dir() / "node" / "run.prom").ends_with("# EOF\n"));
  const std::string url = "http://127.0.0.1:" + std::to_string(sink.port()) + "/metrics";
  for (const auto& [format, source] :
       std::vector<std::pair<std::string, std::string>>{{"openmetrics", url},
                                                        {"prometheus", url},
                                                        {"openmetrics", (run.dir() / "node" / "run.prom").string()},
                                                        {"prometheus", (run.dir() / "node" / "run.prom").string()}}) {
    INFO(format << " " << source);
    const json got = parse(format, source);
    if (got.is_null()) {
      return;
    }
    const json train = {{"split", "train_step"}, {"mode", "train"}};
    CHECK(value_of(got, "danling_loss", train) == 0.1 + 0.2);
    CHECK(value_of(got, "danling_loss", {{"split", "val"}, {"mode", "evaluate"}}) == 1e22);
    CHECK(value_of(got, "danling_gone", train) == 1.0);
    CHECK(value_of(got, "danling_nan", train) == "nan");
    CHECK(value_of(got, "danling_up", train) == "inf");
    CHECK(value_of(got, "danling_down", train) == "-inf");
    CHECK(value_of(got, "danling_tiny", train) == 4.9406564584124654e-324);
    CHECK(value_of(got, "danling_step_time_seconds", train) == 0.125);
    CHECK(value_of(got, "danling_run_steps_total", json::object()) == 2.0);
    CHECK(value_of(got, "danling_run_lines_total", json::object()) == 3.0);
    CHECK(value_of(got, "danling_run_samples_total", json::object()) == 640.0);
    CHECK(value_of(got, "danling_run_dropped_records_total", json::object()) == 3.0);
    CHECK(value_of(got, "danling_run_epoch", json::object()) == 0.0);
    CHECK(value_of(got, "danling_run_start_time_seconds", json::object()) == 1000.5);
    CHECK(value_of(got, "danling_run_last_record_time_seconds", json::object()) == 1003.0);
    CHECK(value_of(got, "danling_run_status", {{"status", "finished"}}) == 1.0);
    CHECK(value_of(got, "danling_run_status", {{"status", "running"}}).is_null());
    CHECK(value_of(got, "danling_run_info", {{"name", "digits"}, {"lineage", "mnist"}, {"experiment", "wide"}}) == 1.0);
    if (format == "openmetrics" || source == url) {  // the older parser does not know OpenMetrics's counters
      CHECK(entry_of(got, "danling_run_steps_total")["type"] == "counter");
    }
    if (format == "openmetrics") {
      CHECK(entry_of(got, "danling_step_time_seconds")["unit"] == "seconds");
    }
  }
}

TEST_CASE("OpenMetricsSink: hostile names and texts are read back whole", "[telemetry][openmetrics]") {
  SinkRun run;
  const fs::path file = run.dir() / "run.prom";
  OpenMetricsSink sink({.file = file});
  run.info().name = "a \"b\"\\n\n\\";
  run.begin(sink, attempt, 1000);
  run.log(sink, "s\n\"\\\xff", 1,
          values_of({{"acc@1", 1},
                     {"acc_1", 2},
                     {"acc/1", 3},
                     {"é", 4},
                     {"", 5},
                     {"1st", 6},
                     {"run_steps", 7},
                     {"x_total", 8},
                     {"step_time_seconds", 9},
                     {"y_bucket", 10},
                     {"z_info", 11},
                     {"x", 12},
                     {"w_created", 13},
                     {"run_steps_total", 14},
                     {std::string(5000, 'n'), 15}}),
          1001);
  sink.flush();
  const json got = parse("openmetrics", file.string());
  if (got.is_null()) {
    return;
  }
  const auto of = [&](const std::string& name, json labels) {
    labels["split"] = "s\n\"\\\xEF\xBF\xBD";
    labels["mode"] = "evaluate";
    return value_of(got, name, labels);
  };
  CHECK(of("danling_acc_1", {{"metric", "acc@1"}}) == 1.0);
  CHECK(of("danling_acc_1", json::object()) == 2.0);
  CHECK(of("danling_acc_1", {{"metric", "acc/1"}}) == 3.0);
  CHECK(of("danling___", {{"metric", "é"}}) == 4.0);
  CHECK(of("danling_", json::object()) == 5.0);
  CHECK(of("danling_1st", json::object()) == 6.0);
  CHECK(of("danling_value_run_steps", json::object()) == 7.0);
  CHECK(of("danling_x_total", json::object()) == 8.0);
  CHECK(of("danling_value_step_time_seconds", json::object()) == 9.0);
  CHECK(of("danling_step_time_seconds", json::object()) == 0.125);
  CHECK(of("danling_y_bucket", json::object()) == 10.0);
  CHECK(of("danling_z_info", json::object()) == 11.0);
  CHECK(of("danling_x", json::object()) == 12.0);
  CHECK(of("danling_w_created", json::object()) == 13.0);
  CHECK(of("danling_value_run_steps_total", json::object()) == 14.0);
  CHECK(of("danling_" + std::string(5000, 'n'), json::object()) == 15.0);
  CHECK(value_of(got, "danling_run_info", {{"name", run.info().name}, {"lineage", "mnist"}, {"experiment", "wide"}}) ==
        1.0);
}

TEST_CASE("OpenMetricsSink: the text is that of the format", "[telemetry][openmetrics]") {
  using danling::detail::MetricFamilies;
  using danling::detail::MetricFormat;
  using danling::detail::MetricType;
  MetricFamilies families;
  families.declare("steps", MetricType::counter, "", "Number of steps.");
  families.set("steps", {{"run", "a"}}, 2);
  families.declare("time_seconds", MetricType::gauge, "seconds", "One \\ step.");
  families.set("time_seconds", {{"run", "\"b\"\n"}, {"split", "val"}}, 0.5);
  CHECK(families.text(MetricFormat::openmetrics) ==
        "# TYPE steps counter\n# HELP steps Number of steps.\nsteps_total{run=\"a\"} 2.0\n"
        "# TYPE time_seconds gauge\n# UNIT time_seconds seconds\n# HELP time_seconds One \\\\ step.\n"
        "time_seconds{run=\"\\\"b\\\"\\n\",split=\"val\"} 0.5\n# EOF\n");
  CHECK(families.text(MetricFormat::prometheus) ==
        "# TYPE steps_total counter\n# HELP steps_total Number of steps.\nsteps_total{run=\"a\"} 2.0\n"
        "# TYPE time_seconds gauge\n# HELP time_seconds One \\\\ step.\n"
        "time_seconds{run=\"\\\"b\\\"\\n\",split=\"val\"} 0.5\n");
}

TEST_CASE("OpenMetricsSink: a client gets the format that it asks for", "[telemetry][openmetrics]") {
  using danling::detail::MetricFormat;
  using danling::detail::negotiate;
  CHECK(negotiate("application/openmetrics-text;version=1.0.0,text/plain;q=0.5") == MetricFormat::openmetrics);
  CHECK(negotiate("text/plain, application/openmetrics-text ; q=0.2") == MetricFormat::openmetrics);
  CHECK(negotiate("application/openmetrics-text;q=0, text/plain;q=1") == MetricFormat::prometheus);
  CHECK(negotiate("text/html,*/*;q=0.8") == MetricFormat::prometheus);
  CHECK(negotiate("") == MetricFormat::prometheus);
}

TEST_CASE("OpenMetricsSink: a taken port is an error of each begin, until it is free", "[telemetry][openmetrics]") {
  SinkRun run;
  auto other = std::make_unique<danling::LoopbackServer>(
      danling::LoopbackServerOptions{}, [](const danling::HttpRequest&) { return danling::HttpResponse(); });
  OpenMetricsSink sink({.port = other->port()});
  for (int i = 0; i < 2; ++i) {
    CHECK(error_of<danling::Error>([&] { sink.begin(run.info()); })
              .starts_with("[loopback_server.open] expected to listen on 127.0.0.1:" + std::to_string(other->port()) +
                           ", got 'Address already in use'"));
  }
  const std::uint16_t port = other->port();
  other.reset();
  sink.begin(run.info());
  CHECK(sink.port() == port);
  sink.begin(run.info());  // a roll-back keeps it
  CHECK(sink.port() == port);
}

TEST_CASE("OpenMetricsSink: a full disk leaves the older file, and a removed folder comes back",
          "[telemetry][openmetrics]") {
  SinkRun run;
  const fs::path folder = run.dir() / "node";
  OpenMetricsSink sink({.file = folder / "run.prom"});
  run.begin(sink, attempt, 1000);
  sink.flush();
  const std::string before = read_file(folder / "run.prom");
  run.log(sink, "train", 1, values_of({{"loss", 5}}), 1001);
  {
    const FileSizeLimit full(10);
    CHECK_THROWS_AS(sink.flush(), danling::Error);
  }
  CHECK(read_file(folder / "run.prom") == before);
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 1);
  fs::remove_all(folder);
  sink.flush();
  CHECK(read_file(folder / "run.prom")
            .find("danling_loss{run=\"1a2b3c4d-0123456789ab\",split=\"train_step\",mode=\"train\"} 5.0\n") !=
        std::string::npos);
}

TEST_CASE("OpenMetricsSink: refuses options without a place and names that are no counters",
          "[telemetry][openmetrics]") {
  CHECK(error_of<danling::ConfigError>([] { OpenMetricsSink({}); }) ==
        "[openmetrics.options] expected a port or a file, got neither");
  OpenMetricsSink sink({.port = 0});
  CHECK(error_of<danling::Error>([&] { sink.set_total("a-b", 1); }) ==
        "[openmetrics.set_total] expected a name of a to z and _, got 'a-b'");
}

}  // namespace openmetrics_test
