// Lock: locks the directory of a run by flock on a file; the system releases the lock when the process ends.
#pragma once

#include <filesystem>
#include <string>

#include <danling/workspace/workspace.hpp>

namespace danling::inline v0 {

class Workspace::Lock {
 public:
  /// @throws StateError with the process that holds the lock, ConfigError if the file cannot be opened
  explicit Lock(const std::filesystem::path& path);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  /// The attempt that held the lock before; empty if there was none.
  const std::string& earlier_attempt() const { return earlier_attempt_; }
  /// Returns true if the file still exists under its name; otherwise other processes do not see the lock.
  bool exists() const;
  /// Writes this process and attempt into the file.
  void write_owner(const std::string& timestamp);

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::string earlier_attempt_;
};

}  // namespace danling::inline v0
