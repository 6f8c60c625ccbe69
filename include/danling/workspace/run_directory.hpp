// RunDirectory: lists the directories of runs and reads their small files on demand.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/config/tree.hpp>
#include <danling/core/result.hpp>
#include <danling/workspace/workspace.hpp>

namespace danling::inline v0 {

/// A value from a file of a run, or the reason why it is missing. A missing, partly written or unknown file is not an
/// error for a reader.
template <class T>
struct ReadResult {
  std::optional<T> value = {};
  /// The reason, such as `no file 'x'`; empty if there is a value.
  std::string problem = {};

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
};

/// The content of summary.json. Entries that the file lacks are empty; a missing status is "unknown".
struct StoredSummary {
  RunSummary run;
  std::string name;
  /// The attempt that wrote the summary.
  std::string timestamp;
  /// Time in UTC, in the format of make_utc_time().
  std::string finished_at;
  std::string host;
  std::int64_t pid = 0;
};

/// The content of metadata/git.yaml; `code.diff` is read from git.diff only by code_identity(/*with_diff=*/true).
struct StoredIdentity {
  CodeIdentity code;
  /// The latest attempt in this directory.
  std::string timestamp;
};

/// The content of .lock, and the state of the lock: held by a running process, free, or unknown.
struct LockInfo {
  enum class State { held, free, unknown };
  State state = State::unknown;
  std::int64_t pid = 0;
  std::string host;
  std::string timestamp;
};

/// The position of a complete line of metrics.jsonl.
struct MetricsPosition {
  std::string split;
  std::string mode;
  /// The epoch in progress, counted from 0, as in the file.
  std::optional<std::int64_t> epoch;
  std::int64_t global_step = 0;
};

/// A checkpoint file. Hard links of one file have the same `inode` and share its bytes.
struct CheckpointEntry {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0;
  std::filesystem::file_time_type written = {};
};

/// The score by which a run chooses its best result.
struct ScoreRule {
  std::string split;
  std::string name;
  bool higher_is_better = false;
  /// True if the config or the results determine the direction; otherwise it is guessed by the name.
  bool direction_known = false;

  /// The path in a result, such as `val.acc`.
  std::string path() const { return split + "." + name; }
};

/// The directory of one run, read-only. Every call reads its file again. No function throws.
class RunDirectory {
 public:
  /// Only stores the path.
  explicit RunDirectory(std::filesystem::path dir) : dir_(std::move(dir)) {}

  const std::filesystem::path& dir() const { return dir_; }
  /// The name of the directory: `[<code id>-]<config id>`.
  std::string id() const;
  /// The name of the parent directory: `<lineage>[-<code id>]`.
  std::string folder() const;
  /// The name of the lineage: `folder()` without the code id.
  std::string lineage() const;

  /// Selects metadata/config.full.yaml, config.canonical.yaml or config.diff.yaml.
  enum class ConfigText { full, canonical, diff };
  ReadResult<std::string> config_text(ConfigText which = ConfigText::full) const;
  ReadResult<ConfigTree> config(ConfigText which = ConfigText::full) const;

  ReadResult<StoredIdentity> code_identity(bool with_diff = false) const;
  /// The rows of results.json in order, latest.json and best.json; numbered by epoch (from 1) or step.
  ReadResult<std::vector<NumberedResult>> results() const;
  ReadResult<NumberedResult> latest() const;
  ReadResult<NumberedResult> best() const;
  ReadResult<StoredSummary> summary() const;
  /// Takes a shared lock briefly to check that the lock is free; a process that starts at that moment waits for it.
  LockInfo lock() const;
  /// The last complete line of metrics.jsonl; reads only the end of the file.
  ReadResult<MetricsPosition> last_line() const;
  /// Size of a file in the directory, or nullopt.
  std::optional<std::uint64_t> file_size(std::string_view name) const;

  /// The folder of the checkpoints, by the config.
  std::filesystem::path checkpoint_dir() const;
  /// The complete `.pth` and `.safetensors` files in `checkpoint_dir()`, sorted by name, without the directories of
  /// sharded checkpoints; opens no file.
  std::vector<CheckpointEntry> checkpoints() const;
  /// The names of earlier attempts, sorted.
  std::vector<std::string> attempts() const;
  /// The newest log file of the first rank, as it is written now: without those of other ranks and rotated ones.
  std::optional<std::filesystem::path> log_file() const;
  /// Bytes of all files below; counts hard links once, does not follow symbolic links.
  std::uint64_t bytes() const;

 private:
  std::filesystem::path dir_;
};

/// Holds the lock of a run's directory, so that no process starts a run in it, for example during its removal.
class RunLock {
 public:
  /// @throws StateError if a process runs there, Error if the lock cannot be opened; a run without a lock file is free
  explicit RunLock(const std::filesystem::path& dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

/// Returns "running", the status in the summary ("finished", "stopped", "crashed", "unknown"), or "dead" if the latest
/// attempt ended without a summary. All arguments are of the same run.
std::string run_status(const LockInfo& lock, const ReadResult<StoredSummary>& summary,
                       const ReadResult<MetricsPosition>& last_line);

/// Determines the score of a run. Split: from the config, else the first in `result` that begins with "val", else the
/// first that is not trained. Direction: from the config, else from `best` compared with `rows`, else by the name:
/// lower is better for losses. Returns nullopt without a score_name in the config or without a split.
std::optional<ScoreRule> score_rule(std::string_view config_text, const Result& result,
                                    const std::vector<NumberedResult>& rows = {}, const NumberedResult* best = nullptr);

/// Returns the value at `key` ("optim.lr") in a config's YAML as danling writes it, without parsing the whole text;
/// null if the key has no value or does not exist.
ConfigTree find_config_value(std::string_view config_text, std::string_view key);

/// Returns true if `dir` is the directory of a run: it contains a lock or metadata that a run wrote.
bool is_run_directory(const std::filesystem::path& dir);

/// Returns the directories of runs: `root` itself, or its subdirectories of the first and second level, without hidden
/// ones; sorted by path. Reads no file. @throws Error if `root` is not a readable directory
std::vector<std::filesystem::path> list_runs(const std::filesystem::path& root);

/// Parses a timestamp of make_timestamp in local time; returns nullopt for any other text.
std::optional<std::chrono::system_clock::time_point> parse_timestamp(std::string_view timestamp);

}  // namespace danling::inline v0
