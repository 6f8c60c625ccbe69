// A directory of sharded checkpoints: each is a directory, with names in files `<name>.pointer`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/formats/detail/dcp_manifest.hpp>

#include <checkpoint/directory.hpp>
#include <checkpoint/directory_lock.hpp>
#include <checkpoint/retention.hpp>

namespace danling::inline v0 {

/// Reads and verifies everything in a sharded checkpoint. @throws CheckpointError
void verify_sharded(const std::filesystem::path& directory);

/// Use by one thread at a time; by rank 0 only, except for reading names.
class ShardedDirectory {
 public:
  explicit ShardedDirectory(const std::filesystem::path& directory)
      : directory_(std::filesystem::absolute(directory)) {}

  const std::filesystem::path& path() const { return directory_; }
  /// The directory that `name` points to; empty without such a pointer.
  std::optional<std::filesystem::path> find(const std::string& name) const;
  /// The names of all pointers.
  std::vector<std::string> names() const;

  /// Creates and locks the directory, removes incomplete saves, reads the history.
  /// @throws StateError when another process or manager saves into it
  void prepare(const RetentionRules& rules);
  /// Like prepare(), if the directory was removed meanwhile; then returns a warning.
  std::string recreate(const RetentionRules& rules);
  /// Writes the pointers of `what` to the completed checkpoint `target`, a directory in this one, and prunes the
  /// history. `running`: the prefix before the save number in this run's directory names; directories with later
  /// numbers are being written. Returns failures.
  Published publish(const Publication& what, const std::string& target, const std::string& running);
  /// Writes a pointer `name` to `target`. @throws CheckpointError
  void point(const std::string& name, const std::string& target) const;
  void unlock();

  /// The checkpoints from which a run may resume, newest first: `latest`, those with damaged manifests, then by
  /// counters. Excludes checkpoints of models alone, except `latest`. Appends incomplete saves to `skipped`.
  std::vector<std::filesystem::path> candidates(std::vector<SkippedCheckpoint>& skipped) const;
  /// Records that `path` was read and is valid.
  void note_valid(const std::filesystem::path& path);

 private:
  std::vector<std::string> saves() const;
  void prune(const Publication& what, Published& out);
  void remove_unnamed(const std::string& target, const std::string& running) const;
  std::vector<HistoryEntry> history_on_disk() const;

  std::filesystem::path directory_;
  DirectoryLock lock_;
  bool prepared_ = false;
  std::vector<HistoryEntry> history_;  // oldest first; begins with entries ahead of this run, of an abandoned one
  std::string known_valid_;            // the name of a directory that this process wrote or read
};

}  // namespace danling::inline v0
