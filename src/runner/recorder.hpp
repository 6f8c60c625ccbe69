// A run on disk: its directory, log, lines of metrics, results, and how it ended. A rank that writes nothing, and a run
// with `record: false`, have none.
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
#include <danling/telemetry/metrics_log.hpp>
#include <danling/workspace/workspace.hpp>

#include "runner/restore_point.hpp"

namespace danling::inline v0::detail {

/// The config in the three texts of the metadata.
struct RecordedConfig {
  std::string full, canonical, diff;
};

struct RecorderOptions {
  bool log = true;
  bool stop_on_error = false;  ///< `checkpoint.on_error: stop`: a file that cannot be written ends the run
  bool may_fail = false;       ///< `checkpoint.load_only`: a directory that cannot be written ends the recording alone
  bool by_path = false;        ///< `resume` names the checkpoint
  std::int64_t first = 1;      ///< the number in files of the result with index 0
};

class Recorder : public Callback {
 public:
  Recorder(Workspace& workspace, Logger& logger, RecorderOptions options)
      : workspace_(workspace), logger_(logger), options_(options) {}

  std::string name() const override { return "recorder"; }
  void on_log(const LogEvent& event) override;
  void on_result(const ResultEvent& event) override { write(event.results); }

  bool is_open() const { return workspace_.is_open(); }

  /// Takes the run's directory, where it goes on from `from`: `newest` says that this is the newest state there. An
  /// earlier attempt moves aside unless the run goes on in it. @return whether the state and its history are still to
  /// be taken over, from taken_from()
  bool open(const RestorePoint& from, bool newest, RecordedConfig config, const CodeIdentity& code);
  const std::filesystem::path& taken_from() const { return taken_from_; }
  void taken_over() { workspace_.taken_over(); }
  /// Makes the directory anew where someone removed it under the run, and logs it. @return whether it was gone whole
  bool reopen();
  /// Whether reopen() has logged the removal of checkpoints since the last call.
  bool take_removal_told() { return std::exchange(removal_told_, false); }

  /// A failure is logged once, and the line written with a later one; with stop_on_error it throws Error.
  void append(const MetricsLine& line);
  /// Writes into `checkpoint` how many lines metrics.jsonl has and the text of those that wait for room on disk, which
  /// would be lost with the process.
  void save_lines(State& checkpoint);
  /// Brings metrics.jsonl to where a checkpoint was taken.
  void restore_lines(std::int64_t lines, const std::string& waiting);

  /// results.json, latest.json and best.json. A failure is logged once, and the files written with the next result.
  void write(const ResultBook& results);
  /// Writes what could not be written so far; with `again`, the results in any case. @throws Error when it still cannot
  /// be written
  void settle(const ResultBook& results, bool again);
  /// The result in best.pth where it is not that of the best: -1 where there is no such file; nothing where it is.
  void hold_best(std::optional<std::int64_t> index) { best_held_ = index; }
  const std::optional<std::int64_t>& held_best() const { return best_held_; }
  /// What best.json is to hold; null for no file.
  const ResultBook::Row* row_of_best_file(const ResultBook& results) const;
  /// Whether best.json is of this result: a full disk may have kept it from being written, and the process then died.
  bool best_file_is_of(std::int64_t index) const;
  void remove_best_file() const;

  /// summary.json; the time since the start is added.
  void write_summary(RunSummary summary, bool keep_finished);
  /// Says how many lines of metrics are lost, and gives the directory free.
  void close();

 private:
  template <class Write>
  bool write_or_tell(std::string& told, std::string_view hope, const Write& write);
  void tell_success(std::string& told, std::string_view what);
  void copy_metrics_of(const std::filesystem::path& run);
  void write_metadata();
  void write_files(const ResultBook& results);
  NumberedResult numbered(const ResultBook::Row& row) const { return {row.index + options_.first, row.result}; }

  Workspace& workspace_;
  Logger& logger_;
  RecorderOptions options_;
  RecordedConfig config_;
  CodeIdentity code_;
  std::optional<MetricsLog> metrics_;
  std::filesystem::path taken_from_;
  // The failure that was logged last; empty since the last success.
  std::string metrics_failure_, results_failure_, workspace_failure_;
  bool removal_told_ = false;
  std::optional<NumberedResult> best_due_;  // what best.json is to hold, as long as it could not be written
  std::optional<std::int64_t> best_held_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace danling::inline v0::detail
