// Reads the directories of runs: lists them, and reads the small files of one on demand.
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

/// A value of a run's file, or why there is none: a missing, half-written or unknown file is no error of its reader.
template <class T>
struct Fact {
  std::optional<T> value = {};
  /// `no file 'x'`, or what is wrong with it; empty with a value.
  std::string problem = {};

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
};

/// Contents of summary.json. Entries that the file lacks are empty.
struct StoredSummary {
  RunSummary run;
  std::string name;
  /// The attempt that wrote it.
  std::string timestamp;
  /// UTC, as make_utc_time() writes it.
  std::string finished_at;
  std::string host;
  std::int64_t pid = 0;
};

/// Contents of metadata/git.yaml; `code.diff` is that of git.diff only in code_identity(/*with_diff=*/true).
struct StoredIdentity {
  CodeIdentity code;
  /// The last attempt that began here.
  std::string timestamp;
};

/// Contents of .lock, and whether its process holds it now.
struct LockFacts {
  enum class State { held, free, unknown };
  State state = State::unknown;
  std::int64_t pid = 0;
  std::string host;
  std::string timestamp;
};

/// A complete line of metrics.jsonl without its numbers.
struct MetricsPosition {
  std::string split;
  std::string mode;
  /// The epoch in progress, counted from 0, as in the file.
  std::optional<std::int64_t> epoch;
  std::int64_t global_step = 0;
};

/// A checkpoint file. Hard links of one file have one `inode`, and share its bytes.
struct CheckpointEntry {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0;
  std::filesystem::file_time_type written = {};
};

/// The number by which a run chooses its best.
struct ScoreRule {
  std::string split;
  std::string name;
  bool higher_is_better = false;
  /// Whether the run itself shows the direction; else it is guessed by the name.
  bool direction_known = false;

  /// `val.acc`: its path in a result.
  std::string path() const { return split + "." + name; }
};

/// One run's directory. Every function reads its file anew; none throws, and none writes.
class RunDirectory {
 public:
  /// Reads nothing.
  explicit RunDirectory(std::filesystem::path dir) : dir_(std::move(dir)) {}

  const std::filesystem::path& dir() const { return dir_; }
  /// `[<code id>-]<config id>`, the directory's name.
  std::string id() const;
  /// `<lineage>[-<code id>]`, the name of the directory around it.
  std::string folder() const;
  /// Name of the lineage: `folder()` without the code id.
  std::string lineage() const;

  /// The config as YAML: metadata/config.{full,canonical,diff}.yaml.
  enum class ConfigText { full, canonical, diff };
  Fact<std::string> config_text(ConfigText which = ConfigText::full) const;
  Fact<ConfigTree> config(ConfigText which = ConfigText::full) const;

  Fact<StoredIdentity> code_identity(bool with_diff = false) const;
  /// Rows of results.json in order, and latest.json and best.json, numbered by epoch (from 1) or step.
  Fact<std::vector<NumberedResult>> results() const;
  Fact<NumberedResult> latest() const;
  Fact<NumberedResult> best() const;
  Fact<StoredSummary> summary() const;
  /// Shares the lock for an instant to see whether it is free; a process that starts meanwhile waits for that.
  LockFacts lock() const;
  /// The last complete line of metrics.jsonl; reads the file's end only.
  Fact<MetricsPosition> last_line() const;
  /// Size of the file, or nothing.
  std::optional<std::uint64_t> file_size(std::string_view name) const;

  /// The folder of its checkpoints, as the config names it.
  std::filesystem::path checkpoint_dir() const;
  /// Complete files in `checkpoint_dir()` by name; no file is opened.
  std::vector<CheckpointEntry> checkpoints() const;
  /// Names of earlier attempts, the oldest first.
  std::vector<std::string> attempts() const;
  /// The newest log file.
  std::optional<std::filesystem::path> log_file() const;
  /// Bytes of all files below; hard links count once, symbolic links are not followed.
  std::uint64_t bytes() const;

 private:
  std::filesystem::path dir_;
};

/// Holds the lock of a run's directory, so that no process starts in it, such as while it is removed.
class RunHold {
 public:
  /// @throws StateError when a process runs there, Error when the lock cannot be opened; a run without a lock is free
  explicit RunHold(const std::filesystem::path& dir);
  ~RunHold();
  RunHold(const RunHold&) = delete;
  RunHold& operator=(const RunHold&) = delete;

 private:
  int file_ = -1;
};

/// "running", the status of its summary ("finished", "stopped", "crashed"), or "dead": its last attempt ended without
/// one. `summary` and `last_line` are those of the run.
std::string run_status(const LockFacts& lock, const Fact<StoredSummary>& summary,
                       const Fact<MetricsPosition>& last_line);

/// The score of a run. The split is that of the config, else one of `result` that begins with "val", else its first
/// that is not trained; the direction that of the config, else that which the chosen `best` shows among `rows`, else
/// whether the name is a loss. Nothing without a config or a split.
std::optional<ScoreRule> score_rule(std::string_view config_text, const Result& result,
                                    const std::vector<NumberedResult>& rows = {}, const NumberedResult* best = nullptr);

/// The value at `key` ("optim.lr") of a config's YAML as danling writes it, found without parsing the whole: null where
/// the key has no value or is not there.
ConfigTree find_config_value(std::string_view config_text, std::string_view key);

/// Whether `dir` is the directory of a run: it has a lock or metadata that a run wrote.
bool is_run_directory(const std::filesystem::path& dir);

/// The directories of the runs below `root`: `root` itself, those in it, or those in the folders in it; sorted by path.
/// Reads no file. @throws Error when `root` is not a directory that can be read
std::vector<std::filesystem::path> list_runs(const std::filesystem::path& root);

/// The time of a timestamp (see make_timestamp), or nothing when it is none.
std::optional<std::chrono::system_clock::time_point> parse_timestamp(std::string_view timestamp);

}  // namespace danling::inline v0
