// A run that feeds one sink, as a SinkThread does, and the Python packages that read what sinks write.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/telemetry/metrics_lines.hpp>
#include <danling/telemetry/sink.hpp>

#include <telemetry/metrics_log.hpp>

#include <support/catch.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace danling_test {

/// The run's directory, its metrics.jsonl, and the records of each line for a sink.
class SinkRun {
 public:
  explicit SinkRun(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : dir_(parent), log_(dir_ / "metrics.jsonl") {
    info_.name = "digits";
    info_.id = "1a2b3c4d-0123456789ab";
    info_.lineage = "mnist";
    info_.experiment = "wide";
    info_.dir = dir_.path();
    info_.metrics_file = dir_ / "metrics.jsonl";
    info_.config = "optim:\n  lr: 0.1\nseed: 7\nname: null\nsizes: [1, 2]\nlimit: .inf\nnote: \"é \\\"x\\\"\\n\"\n";
    info_.hparams = {{"optim.lr", "0.1"}, {"seed", "7"}};
  }

  const std::filesystem::path& dir() const { return dir_.path(); }
  danling::RunInfo& info() { return info_; }
  std::int64_t lines() const { return log_.lines(); }

  /// An attempt begins, or goes back, after the first `lines` lines.
  void begin(danling::Sink& sink, const std::string& timestamp, double time, std::int64_t lines = 0) {
    log_.truncate_to_lines(lines);
    info_.timestamp = timestamp;
    info_.time = time;
    info_.lines = lines;
    const std::int64_t held = sink.begin(info_);
    danling::read_metrics_lines(info_.metrics_file, held, lines,
                                [&](const danling::ScalarRecord& record) { sink.scalars(record); });
  }

  /// Of a log boundary in training, or of an evaluation.
  danling::ScalarRecord append(const std::string& split, std::int64_t step, const danling::Result& values,
                               double time) {
    danling::Result telemetry;
    telemetry.set("time", 0.125);
    telemetry.set("timestamp", time);
    log_.append({.split = split,
                 .mode = split == "train" ? "train" : "evaluate",
                 .epoch = 0,
                 .global_step = step,
                 .iteration = split == "train" ? std::optional(step) : std::nullopt,
                 .metrics = values,
                 .telemetry = telemetry});
    danling::ScalarRecord record{.split = split,
                                 .mode = split == "train" ? "train" : "evaluate",
                                 .epoch = 0,
                                 .global_step = step,
                                 .iteration = split == "train" ? std::optional(step) : std::nullopt,
                                 .values = values,
                                 .telemetry = telemetry,
                                 .time = 0.0,
                                 .line = log_.lines()};
    danling::take_time(record);
    return record;
  }

  void log(danling::Sink& sink, const std::string& split, std::int64_t step, const danling::Result& values,
           double time) {
    sink.scalars(append(split, step, values, time));
  }

 private:
  TempDir dir_;
  danling::MetricsLog log_;
  danling::RunInfo info_;
};

inline danling::Result values_of(std::vector<std::pair<std::string, double>> entries) {
  danling::Result out;
  for (const auto& [name, value] : entries) {
    out.set(name, value);
  }
  return out;
}

/// The interpreter, if it can import `package`.
inline std::optional<std::string> python_with(const std::string& package) {
  if (PythonServer::instance().can_import(package)) {
    return PythonServer::name();
  }
  WARN("skipped: no Python that can import " << package << "; set DANLING_PYTHON");
  return {};
}

/// Runs a script of tests/golden with arguments, in single quotes where they have spaces; its output is shown when it
/// fails.
inline void run_script(const std::string& script, const std::string& arguments, const std::filesystem::path& output) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : arguments) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  std::erase(words, "");
  const bool succeeded = PythonServer::instance().run("tests/golden/" + script, words, output.string());
  INFO(script << " " << arguments << "\n" << read_file(output));
  REQUIRE(succeeded);
}

}  // namespace danling_test
