// Recorder of a run on disk: directory, log, metrics, results and summary. Null with `record: false` and on ranks that
// write nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <danling/core/result.hpp>
#include <danling/runner/callback.hpp>
#include <danling/runner/results.hpp>
#include <danling/state/state.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/restore_point.hpp>
#include <telemetry/metrics_log.hpp>

namespace danling::inline v0::detail {

/// Texts of the metadata: the config in three forms, and the size of the model.
struct RecordedConfig {
  std::string full, canonical, diff, model;
};

struct RecorderOptions {
  bool log = true;
  bool stop_on_error = false;  ///< `checkpoint.on_error: stop`: a write error ends the run
  bool may_fail = false;       ///< `checkpoint.load_only`: an unwritable directory disables recording only
  bool by_path = false;        ///< `resume` names the checkpoint
  std::int64_t first = 1;      ///< number in files of the result with index 0
};

class Recorder : public Callback {
 public:
  Recorder(Workspace& workspace, Logger& logger, RecorderOptions options)
      : workspace_(workspace), logger_(logger), options_(options) {}

  std::string name() const override { return "recorder"; }
  void on_log(const LogEvent& event) override;
  void on_result(const ResultEvent& event) override { write(event.results); }

  bool is_open() const { return workspace_.is_open(); }

  /// Sets up the run's directory for a run that resumes from `from`. Moves an earlier attempt to `attempts/` unless the
  /// run continues it. @param newest  `from` is the newest state there. @return true if the state and its history must
  /// be copied from taken_from()
  bool open(const RestorePoint& from, bool newest, RecordedConfig config, const CodeIdentity& code);
  const std::filesystem::path& taken_from() const { return taken_from_; }
  void taken_over() { workspace_.taken_over(); }
  /// Recreates and logs a directory that was removed during the run. @return true if the whole directory was missing
  bool reopen();
  /// True when reopen() has logged a removal of checkpoints since the last call.
  bool take_removal_logged() { return std::exchange(removal_logged_, false); }

  /// Lines of metrics.jsonl, including unwritten lines; empty while it is closed.
  std::optional<std::int64_t> num_lines() const {
    return metrics_ ? std::optional(metrics_->lines() + metrics_->num_unwritten_lines()) : std::nullopt;
  }
  /// Logs each distinct failure once and writes the line with a later one; with stop_on_error throws Error.
  void append(const MetricsLine& line);
  /// Stores in `checkpoint` the number of lines of metrics.jsonl and the text of lines that are not on disk yet.
  void save_lines(State& checkpoint);
  /// Cuts or extends metrics.jsonl to the state of a checkpoint.
  void restore_lines(std::int64_t lines, const std::string& waiting);

  /// Writes results.json, latest.json and best.json. Logs each distinct failure once and writes the files with the next
  /// result.
  void write(const ResultHistory& results);
  /// Retries failed writes; with `again`, always writes the results. @throws Error when a write fails again
  void retry_writes(const ResultHistory& results, bool again);
  /// Sets the index of the result in best.pth if it is not the best: -1 without a file; empty if it is the best.
  void set_best_file_index(std::optional<std::int64_t> index) { best_file_index_ = index; }
  /// The row for best.json; null: no file.
  const ResultHistory::Row* best_file_row(const ResultHistory& results) const;
  /// True when best.json holds this result; false if, for example, the process died after a full disk.
  bool best_file_holds(std::int64_t index) const;
  void remove_best_file() const;

  /// Writes summary.json, with the time since the start.
  void write_summary(RunSummary summary, bool keep_finished);
  /// True when this attempt has written summary.json.
  bool has_summary() const { return has_summary_; }
  /// Logs the number of lost lines of metrics and closes the file.
  void close();

 private:
  template <class Write>
  bool try_write(std::string& last_failure, std::string_view consequence, const Write& write);
  void log_recovery(std::string& last_failure, std::string_view what);
  void copy_metrics_of(const std::filesystem::path& run);
  void write_metadata();
  void write_files(const ResultHistory& results);
  NumberedResult numbered(const ResultHistory::Row& row) const { return {row.index + options_.first, row.result}; }

  Workspace& workspace_;
  Logger& logger_;
  RecorderOptions options_;
  RecordedConfig config_;
  CodeIdentity code_;
  std::optional<MetricsLog> metrics_;
  std::filesystem::path taken_from_;
  // The last logged failure; empty after a success.
  std::string metrics_failure_, results_failure_, workspace_failure_;
  bool removal_logged_ = false;
  bool has_summary_ = false;
  std::optional<NumberedResult> pending_best_;  // row of best.json until it is written
  std::optional<std::int64_t> best_file_index_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace danling::inline v0::detail
