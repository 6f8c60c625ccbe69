// MlflowSink: the run in a file store of MLflow.
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
  /// The store, such as `<workspace_root>/mlruns`; made when missing. Runs of several processes may share it.
  std::filesystem::path directory = {};
  std::string experiment = {};  ///< default: the lineage
  std::string name = {};        ///< of the run, for display; default: the run's id
  std::string git_commit = {};  ///< of the code: the tag mlflow.source.git.commit
  std::vector<std::pair<std::string, std::string>> tags = {};
};

/// Writes `<directory>/<experiment id>/<run id>/`, read back with mlflow 3.17.2: the numbers as metrics under the names
/// that TensorBoard has, the options that determine the run as params, the whole config as the artifact config.yaml,
/// and the status: FINISHED, KILLED after a stop, FAILED after an error, RUNNING before.
///
/// Names that MLflow does not accept, or that would be a file and a folder at once, have `_` for the characters in
/// question and end with a hash of the whole name. Longer values than it accepts are cut.
///
/// A run that resumes goes on in its directory: the metrics are built anew from metrics.jsonl, beside the old ones, and
/// exchanged when all lines are in them. A run that starts afresh is another run. Records are handed over by flush().
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
