// The lock of a run's directory: a file held with flock, which the system releases when its process ends.
#pragma once

#include <filesystem>
#include <string>

#include <danling/workspace/workspace.hpp>

namespace danling::inline v0 {

class Workspace::Lock {
 public:
  /// @throws StateError naming the process that holds it, ConfigError when the file cannot be opened.
  explicit Lock(const std::filesystem::path& path);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  /// The attempt that held the directory before; empty without one.
  const std::string& earlier_attempt() const { return earlier_attempt_; }
  /// Whether its file still has its name; without it, others do not see the lock.
  bool exists() const;
  /// Writes this process and attempt into the file.
  void write_owner(const std::string& timestamp);

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::string earlier_attempt_;
};

}  // namespace danling::inline v0
