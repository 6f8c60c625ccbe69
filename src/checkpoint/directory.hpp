// A directory of checkpoint files: publishes them under several names, finds and prunes them.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/state/state.hpp>

#include <checkpoint/directory_lock.hpp>
#include <checkpoint/retention.hpp>

namespace danling::inline v0 {

/// Attributes that do not change until a file is rewritten.
struct FileIdentity {
  dev_t device = 0;
  ino_t number = 0;
  off_t size = 0;
  std::int64_t modified = 0;  ///< nanoseconds

  bool operator==(const FileIdentity&) const = default;
  bool same_file(const FileIdentity& other) const { return device == other.device && number == other.number; }
};

/// One state to write, and its names.
struct Publication {
  std::string name;                    ///< written as `<name>.pth`
  std::vector<std::string> aliases;    ///< additional names of the same file
  std::optional<std::string> history;  ///< the alias that enters the history
  std::optional<double> score = std::nullopt;
  RetentionRules rules;
  bool latest_may_be_model = false;       ///< `latest` may hold only a model, which must not become `previous`
  std::filesystem::path sync_first = {};  ///< see CheckpointOptions
  /// Set for a model: its weights go to `<this>.safetensors`, those of its EMA to `<this>-ema.safetensors`. Empty: no
  /// export.
  std::string weights = {};
  bool retried = false;  ///< newer states may have been published meanwhile
};

/// Result of a publication: the published names and, on failure, the first reason.
struct Published {
  std::vector<std::string> names;
  std::string error;
  std::string failed_alias;  ///< the name that failed after the file itself was written
  std::string warning;       ///< earlier checkpoints are missing for a reason outside this save
};

/// Use by one thread at a time.
class CheckpointDirectory {
 public:
  /// Resolves a relative directory at construction, not at a save.
  explicit CheckpointDirectory(const std::filesystem::path& directory)
      : directory_(std::filesystem::absolute(directory)) {}
  ~CheckpointDirectory();
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;

  /// `<directory>/<name>.pth`
  std::filesystem::path path_of(const std::string& name) const;

  /// Creates the directory, locks it and reads its history. Call it before publish(). `rules`: for later saves.
  /// @throws StateError when another process or manager saves into it, std::filesystem::filesystem_error
  void prepare(const RetentionRules& rules);
  /// Writes the state, publishes its names and prunes the history. Earlier files stay intact on any error. Returns
  /// failures instead of throwing them.
  Published publish(const Publication& what, const State& state);

  /// @throws CheckpointError
  State load(const std::filesystem::path& path);
  /// See CheckpointManager::load_newest_valid().
  std::optional<ValidCheckpoint> load_newest_valid(const CheckpointFilter& filter);

  /// Releases the directory for other managers.
  void unlock();

 private:
  void write(const Publication& what, const State& state, Published& out);
  void prune(const Publication& what, Published& out);
  bool is_valid(const std::filesystem::path& path) const;
  bool is_model(const std::filesystem::path& path) const;
  void recreate(const Publication& what, Published& out);
  std::vector<HistoryEntry> history_on_disk() const;
  std::vector<std::filesystem::path> older_than_latest() const;

  std::filesystem::path directory_;
  DirectoryLock lock_;
  bool prepared_ = false;
  std::vector<HistoryEntry> history_;        // oldest first; begins with files ahead of this run, of an abandoned one
  std::optional<FileIdentity> known_valid_;  // identity of `latest`
};

}  // namespace danling::inline v0
