// MlflowSink: writes the run into a file store of MLflow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

struct MlflowOptions {
  /// The store, such as `<workspace_root>/mlruns`; created if missing. Runs of several processes may share it.
  std::filesystem::path directory = {};
  std::string experiment = {};  ///< default: the lineage
  std::string name = {};        ///< display name of the run; default: the run's id
  std::string git_commit = {};  ///< commit of the code, for the tag mlflow.source.git.commit
  std::vector<std::pair<std::string, std::string>> tags = {};
};

/// Writes `<directory>/<experiment id>/<run id>/` (tested with mlflow 3.17.2): numbers as metrics with the same names
/// as in TensorBoard, the options that determine the run as params, the whole config as the artifact config.yaml, and
/// the status: RUNNING, then FINISHED, KILLED after a stop, or FAILED after an error.
///
/// If MLflow does not accept a name, or it would be both a file and a folder, the sink replaces the invalid characters
/// by `_` and appends a hash of the whole name. It truncates values that are too long for MLflow.
///
/// A resumed run continues in its directory: the sink rebuilds the metrics from metrics.jsonl in a new folder, which
/// replaces the old one when all lines are written. A fresh start is another run in MLflow. Records reach the files in
/// flush().
class MlflowSink : public Sink {
 public:
  /// @throws ConfigError without a directory
  explicit MlflowSink(MlflowOptions options);
  ~MlflowSink() override;

  std::string name() const override { return "mlflow"; }
  std::int64_t begin(const RunInfo& run) override;
  void scalars(const ScalarRecord& record) override;
  void end(const EndRecord& record) override;
  void flush() override;

 private:
  class Run;
  MlflowOptions options_;
  std::unique_ptr<Run> run_;
};

}  // namespace danling::inline v0
