// The sharded checkpoints of one directory: each a directory of its own, with names in files `<name>.pointer`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/formats/dcp_manifest.hpp>

#include "directory.hpp"
#include "directory_lock.hpp"
#include "retention.hpp"

namespace danling::inline v0 {

/// Reads and verifies everything in a sharded checkpoint. @throws CheckpointError
void verify_sharded(const std::filesystem::path& directory);

/// One thread at a time; of rank 0 alone, except for reading names.
class ShardedDirectory {
 public:
  explicit ShardedDirectory(const std::filesystem::path& directory)
      : directory_(std::filesystem::absolute(directory)) {}

  const std::filesystem::path& path() const { return directory_; }
  /// The directory that `name` stands for; nothing without such a name.
  std::optional<std::filesystem::path> find(const std::string& name) const;
  /// The names of all pointers.
  std::vector<std::string> names() const;

  /// Creates and locks the directory, removes saves that were not completed, reads the history.
  /// @throws StateError when another process or manager saves into it
  void prepare(const RetentionRules& rules);
  /// As prepare(), if the directory was removed meanwhile; returns a warning then.
  std::string recreate(const RetentionRules& rules);
  /// Writes the pointers of `what` to the completed checkpoint `target`, a directory in this one, and prunes the
  /// history. `running`: the part before the save's number in the names of this run's directories; those with later
  /// numbers are being written. Returns failures.
  Published publish(const Publication& what, const std::string& target, const std::string& running);
  /// Names `target` by a pointer. @throws CheckpointError
  void point(const std::string& name, const std::string& target) const;
  void unlock();

  /// The checkpoints that a run may resume from, the newest first: `latest`, damaged manifests, then by counters.
  /// Without checkpoints of models alone, except `latest`. Appends saves that were not completed to `skipped`.
  std::vector<std::filesystem::path> candidates(std::vector<SkippedCheckpoint>& skipped) const;
  /// Records that `path` was read and is sound.
  void note_valid(const std::filesystem::path& path);

 private:
  std::vector<std::string> saves() const;
  void prune(const Publication& what, Published& out);
  void remove_unnamed(const std::string& target, const std::string& running) const;
  std::vector<HistoryEntry> history_on_disk() const;

  std::filesystem::path directory_;
  DirectoryLock lock_;
  bool prepared_ = false;
  std::vector<HistoryEntry> history_;  // oldest first; preceded by those ahead of this run, of an abandoned one
  std::string known_valid_;            // the name of a directory that this process wrote or read
};

}  // namespace danling::inline v0
