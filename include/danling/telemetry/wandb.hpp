// WandbSink: the run as an offline run of Weights & Biases, which `wandb sync` uploads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

/// As the specification's `wandb` section; empty values have the defaults of init_wandb.
struct WandbOptions {
  std::string project = {};  ///< default: the lineage
  std::string entity = {};   ///< default: that of who uploads
  std::string group = {};    ///< default: the experiment
  std::string name = {};     ///< default: the run's id
  std::string job_type = {};
  std::vector<std::string> tags = {};
  std::filesystem::path dir = {};  ///< holds `wandb/offline-run-…`; default: the run's directory
  /// `offline` (also when empty), or `disabled`, which writes nothing. There is no client of the server: `online` is
  /// refused.
  std::string mode = {};
  std::string git_commit = {}, git_remote = {};  ///< of the code, for display
};

/// Writes `<dir>/wandb/offline-run-<start>-<id>/run-<id>.wandb`, read back with wandb 0.31.0: the numbers under the
/// names that TensorBoard has, the config, the latest values and `results/…` as summary, the exit code.
///
/// A run of Weights & Biases has one row for each step, and steps never go back. So records of one step are one row, in
/// which later values replace earlier ones; it is written when a record of a later step comes, and at the end. Records
/// of an earlier step (an older checkpoint evaluated afterwards) are left out, as wandb does.
///
/// A run that resumes goes on in its directory: the file is built anew from metrics.jsonl, beside the old one, which it
/// replaces when all lines are in it. A run that starts afresh is another run.
class WandbSink : public Sink {
 public:
  /// @throws ConfigError for another mode
  explicit WandbSink(WandbOptions options);
  ~WandbSink() override;

  std::string name() const override { return "wandb"; }
  std::int64_t begin(const RunInfo& run) override;
  void scalars(const ScalarRecord& record) override;
  void end(const EndRecord& record) override;
  void flush() override;

 private:
  class File;
  WandbOptions options_;
  std::unique_ptr<File> file_;  // null when disabled
};

}  // namespace danling::inline v0
