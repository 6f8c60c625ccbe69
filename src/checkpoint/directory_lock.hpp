// The lock of a directory that one manager saves into.
#pragma once

#include <filesystem>

namespace danling::inline v0 {

/// Locks the directory itself: this leaves no file behind and ends with the process. On file systems without locks,
/// saves proceed.
class DirectoryLock {
 public:
  DirectoryLock() = default;
  ~DirectoryLock() { unlock(); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  /// Does nothing while locked. @throws StateError when another manager or process has the lock, CheckpointError when
  /// the directory cannot be opened
  void lock(const std::filesystem::path& directory);
  void unlock();
  /// Whether the directory was removed, also if another one has its name now.
  bool is_removed(const std::filesystem::path& directory) const;

 private:
  int descriptor_ = -1;
};

}  // namespace danling::inline v0
