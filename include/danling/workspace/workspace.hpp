// The directory of a run: one per run id, with one attempt at a time.
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

/// Options that determine a run's directory; plain values from the config.
struct WorkspaceOptions {
  std::string root = "experiments";
  std::string lineage = "lin";
  /// Name of the run in its JSON files.
  std::string name = "lin-exp";
  /// Identity of the code; empty where unknown.
  std::string code_id;
  /// Identity of the config, 12 hexadecimal digits.
  std::string config_id;
  /// Name of this attempt; empty: the current time (see make_timestamp).
  std::string timestamp;
  /// Folder for checkpoints inside the run's directory.
  std::string checkpoint_dir_name = "checkpoints";
};

/// A result with its number for display: its epoch, counted from 1, or its step.
struct NumberedResult {
  std::int64_t index = 0;
  Result result;
  std::string score_mode = {};  ///< min or max, of the best; empty: unknown
};

/// Outcome of an attempt, for summary.json.
struct RunSummary {
  /// "finished", "stopped" (by a signal) or "crashed".
  std::string status;
  /// Text of the error of a crash; empty: none.
  std::string error;
  /// The signal that stopped the run; 0: none.
  int signal = 0;
  int exit_code = 0;
  std::int64_t epoch = 0;
  std::int64_t global_step = 0;
  /// Duration of the attempt.
  double seconds = 0.0;
  /// Counts and texts for the `details`.
  std::vector<std::pair<std::string, std::variant<std::int64_t, std::string>>> facts = {};
  /// Further numbers: best scores, time per split.
  Result details = {};
};

/// The directory of one run and the files in it:
///
///     <root>/<lineage>[-<code id>]/<run id>/
///       checkpoints/  logs/<timestamp>.log  metrics.jsonl  results.json  latest.json  best.json  summary.json
///       metadata/{config.full,config.canonical,config.diff,git}.yaml  metadata/git.diff
///       attempts/<timestamp>/      files of earlier attempts
///       .lock                      held while an attempt runs; contains its process
///
/// Paths are valid at once; `open()` creates the files. Only the main process opens it; others read paths.
class Workspace {
 public:
  /// Touches no file. @throws ConfigError when a name cannot be a folder's name.
  explicit Workspace(WorkspaceOptions options);
  /// Releases the directory.
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  const WorkspaceOptions& options() const { return options_; }
  /// `<code id>-<config id>`: the same for every attempt.
  const std::string& id() const { return id_; }
  const std::string& timestamp() const { return options_.timestamp; }
  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path checkpoint_dir() const { return dir_ / options_.checkpoint_dir_name; }
  std::filesystem::path log_file() const { return dir_ / "logs" / (options_.timestamp + ".log"); }
  std::filesystem::path metrics_file() const { return dir_ / "metrics.jsonl"; }
  /// Whether `path` is in this run's directory, except attempts/: a run that resumes from it continues in this
  /// directory.
  bool contains(const std::filesystem::path& path) const;

  /// Locks the directory for this process and creates its folders. Unless `resuming`, first moves the files of an
  /// earlier attempt to attempts/<its timestamp>/. Returns where they were moved, or nothing.
  /// @throws ConfigError when the directory cannot be created or written, StateError when another process runs in it.
  /// `source`: the file that the run resumes from, which may be moved with the rest. Until taken_over() is called,
  /// interrupted_source() finds it at its new path if the process dies.
  std::filesystem::path open(bool resuming, const std::filesystem::path& source = {});
  /// The source of a process that died between open() and taken_over(); empty without one.
  std::filesystem::path interrupted_source() const;
  void taken_over() const;
  bool is_open() const { return lock_ != nullptr; }
  /// Locks the directory and creates its folders again if someone removed it, or its lock, since open(). Returns the
  /// missing path, or nothing. @throws StateError when another process runs there now: the workspace is then closed;
  /// ConfigError when the directory cannot be created or written.
  std::filesystem::path reopen();
  /// Releases the directory for another process; safe to call twice.
  void close() noexcept;

  // All below need open() first (StateError), and throw Error when a file cannot be written.

  /// Writes the three texts of the config, git.yaml and, when there are changes, git.diff (save_metadata).
  void write_metadata(std::string_view full, std::string_view canonical, std::string_view diff,
                      const CodeIdentity& code) const;
  /// Writes results.json (by epoch or step), latest.json and, unless `best` is null, best.json (save_result), the
  /// latter two with their `index`.
  void write_results(const std::vector<NumberedResult>& results, const NumberedResult& latest,
                     const NumberedResult* best) const;
  void write_summary(const RunSummary& summary) const;

 private:
  class Lock;
  std::filesystem::path move_aside() const;
  std::filesystem::path next_attempt() const;
  void require_open(std::string_view operation) const;
  void store_source(const std::filesystem::path& source) const;

  WorkspaceOptions options_;
  std::string id_;
  std::filesystem::path dir_;
  std::unique_ptr<Lock> lock_;
};

/// A run's directory found on disk.
struct FoundRun {
  std::filesystem::path dir;
  /// Empty if the code was unknown.
  std::string code_id;
};

/// The runs of a config under every code identity, the most recently started first, by their metadata: times of
/// directories change in copies. Empty without runs.
/// For auto_resume, which continues a run after the code changed, and reports it.
std::vector<FoundRun> find_runs(const WorkspaceOptions& options);

}  // namespace danling::inline v0
