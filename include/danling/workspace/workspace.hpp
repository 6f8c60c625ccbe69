// Workspace: the directory of a run. A run id has one directory, in which one attempt runs at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <danling/core/result.hpp>
#include <danling/workspace/code_identity.hpp>

namespace danling::inline v0 {

/// Options that determine the directory of a run; plain values from the config.
struct WorkspaceOptions {
  std::string root = "experiments";
  std::string lineage = "lin";
  /// Name of the run in its JSON files.
  std::string name = "lin-exp";
  /// Identity of the code; empty if unknown.
  std::string code_id;
  /// Identity of the config, 12 hexadecimal digits.
  std::string config_id;
  /// Name of this attempt; if empty, the current time (see make_timestamp).
  std::string timestamp;
  /// Name of the folder for checkpoints in the run's directory.
  std::string checkpoint_dir_name = "checkpoints";
};

/// A result with its number for display: the epoch, from 1, or the step.
struct NumberedResult {
  std::int64_t number = 0;
  Result result;
  std::string score_mode = {};  ///< for the best result: min or max; empty: unknown
};

/// The outcome of an attempt, for summary.json.
struct RunSummary {
  /// "finished", "stopped" (by a signal) or "crashed".
  std::string status;
  /// Error text of a crash; empty: none.
  std::string error;
  /// The signal that stopped the run; 0: none.
  int signal = 0;
  int exit_code = 0;
  std::int64_t epoch = 0;
  std::int64_t global_step = 0;
  /// Duration of the attempt in seconds.
  double seconds = 0.0;
  /// Additional counts and texts, written into `details`.
  std::vector<std::pair<std::string, std::variant<std::int64_t, std::string>>> facts = {};
  /// Additional numbers: best scores, time per split.
  Result details = {};
};

/// The directory of one run and the files in it:
///
///     <root>/<lineage>[-<code id>]/<run id>/
///       checkpoints/  logs/<timestamp>.log  metrics.jsonl  results.json  latest.json  best.json  summary.json
///       metadata/{config.full,config.canonical,config.diff,git}.yaml  metadata/git.diff
///       attempts/<timestamp>/      files of earlier attempts
///       .lock                      locked while an attempt runs; contains process, host and timestamp
///
/// Paths are valid after construction; `open()` creates the directories. Only the main process calls `open()`; other
/// ranks only use the paths.
class Workspace {
 public:
  /// Accesses no file. @throws ConfigError if a name cannot be the name of a folder
  explicit Workspace(WorkspaceOptions options);
  /// Calls close().
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  const WorkspaceOptions& options() const { return options_; }
  /// `<code id>-<config id>`, or `<config id>` if the code is unknown; the same for every attempt.
  const std::string& id() const { return id_; }
  const std::string& timestamp() const { return options_.timestamp; }
  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path checkpoint_dir() const { return dir_ / options_.checkpoint_dir_name; }
  std::filesystem::path log_file() const { return dir_ / "logs" / (options_.timestamp + ".log"); }
  std::filesystem::path metrics_file() const { return dir_ / "metrics.jsonl"; }
  /// Returns true if `path` is in this run's directory but not in attempts/: a run that resumes from it continues in
  /// this directory.
  bool contains(const std::filesystem::path& path) const;

  /// Locks the directory for this process and creates its folders. Unless `resuming`, first moves the files of an
  /// earlier attempt to `attempts/<its timestamp>/` and returns that path; else returns an empty path. `source` is the
  /// file that the run resumes from, which may be moved with the rest: if the process dies before taken_over(),
  /// interrupted_source() finds it at its new path.
  /// @throws ConfigError if the directory cannot be created or written, StateError if another process runs in it
  std::filesystem::path open(bool resuming, const std::filesystem::path& source = {});
  /// Returns the source of a process that died between open() and taken_over(); else an empty path.
  std::filesystem::path interrupted_source() const;
  /// Call it when the checkpoint passed to open() as `source` is loaded: interrupted_source() then returns an empty
  /// path.
  void taken_over() const;
  bool is_open() const { return lock_ != nullptr; }
  /// If the directory or its lock was removed since open(), creates and locks it again and returns the missing path;
  /// else returns an empty path. @throws StateError if another process now runs there (the workspace is then closed),
  /// ConfigError if the directory cannot be created or written
  std::filesystem::path reopen();
  /// Unlocks the directory; safe to call twice.
  void close() noexcept;

  // The functions below throw StateError before open(), and Error if a file cannot be written.

  /// Writes the three texts of the config, git.yaml and, if there are changes, git.diff (DanLing's save_metadata).
  void write_metadata(std::string_view full, std::string_view canonical, std::string_view diff,
                      const CodeIdentity& code) const;
  /// Writes results.json (by epoch or step), latest.json and, unless `best` is null, best.json (DanLing's save_result).
  /// The latter two contain their `index`.
  void write_results(const std::vector<NumberedResult>& results, const NumberedResult& latest,
                     const NumberedResult* best) const;
  /// Writes summary.json: `summary`, and the identity, host, process and paths of the attempt.
  void write_summary(const RunSummary& summary) const;

 private:
  class Lock;
  std::filesystem::path move_aside() const;
  void move_back() const;
  std::filesystem::path next_attempt() const;
  void require_open(std::string_view operation) const;
  void store_source(const std::filesystem::path& source) const;

  WorkspaceOptions options_;
  std::string id_;
  std::filesystem::path dir_;
  std::unique_ptr<Lock> lock_;
};

/// The directory of a run found on disk.
struct FoundRun {
  std::filesystem::path dir;
  /// Identity of the code; empty if it was unknown.
  std::string code_id;
};

/// Finds the runs of a config (of any, if `config_id` is empty) under every code identity, the latest start first.
/// Start times come from the metadata, since times of directories change in copies. auto_resume calls it to continue a
/// run after a change of code.
std::vector<FoundRun> find_runs(const WorkspaceOptions& options);

}  // namespace danling::inline v0
