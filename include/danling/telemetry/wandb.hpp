// WandbSink: writes an offline run of Weights & Biases, which `wandb sync` uploads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

/// Options as in the `wandb` section of the config; empty values have the defaults of DanLing's init_wandb.
struct WandbOptions {
  std::string project = {};  ///< default: the lineage
  std::string entity = {};   ///< default: that of the uploading user
  std::string group = {};    ///< default: the experiment
  std::string name = {};     ///< default: the run's id
  std::string job_type = {};
  std::vector<std::string> tags = {};
  std::filesystem::path dir = {};  ///< parent of `wandb/offline-run-…`; default: the run's directory
  /// `offline` (the default), or `disabled`, which writes nothing. `online` is refused, since there is no client for
  /// the server.
  std::string mode = {};
  std::string git_commit = {}, git_remote = {};  ///< commit and remote of the code, for display
};

/// Writes `<dir>/wandb/offline-run-<start>-<id>/run-<id>.wandb` (tested with wandb 0.31.0): numbers with the same names
/// as in TensorBoard, the config, the latest values and `results/…` as summary, and the exit code.
///
/// A run of Weights & Biases has one row per step, and steps never decrease. So the records of one step form one row,
/// in which later values replace earlier ones; the row is written at the first record of a later step and at the end.
/// Records of an earlier step (an older checkpoint evaluated afterwards) are dropped, as wandb does.
///
/// A resumed run continues in its directory: the sink builds a new file from metrics.jsonl, which replaces the
/// old file when all lines are written. A fresh start is another run.
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
  std::unique_ptr<File> file_;  // null if disabled
};

}  // namespace danling::inline v0
