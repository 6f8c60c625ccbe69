// Lock of a directory into which one manager saves.
#pragma once

#include <filesystem>

namespace danling::inline v0 {

/// Locks the directory itself: no lock file remains, and the lock ends with the process. On file systems without locks,
/// saves proceed.
class DirectoryLock {
 public:
  DirectoryLock() = default;
  ~DirectoryLock() { unlock(); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  /// No effect if locked. @throws StateError when another manager or process has the lock, CheckpointError when the
  /// directory cannot be opened
  void lock(const std::filesystem::path& directory);
  void unlock();
  /// Returns whether the directory was removed, even if another directory has its name now.
  bool is_removed(const std::filesystem::path& directory) const;

 private:
  int descriptor_ = -1;
};

}  // namespace danling::inline v0
