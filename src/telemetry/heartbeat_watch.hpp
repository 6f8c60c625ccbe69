// Reads the heartbeat files of a directory, and how long each process has made no progress.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace danling::inline v0::detail {

/// What the file of a process says.
struct SeenHeartbeat {
  pid_t pid = 0;
  std::int64_t rank = 0, world_size = 1, epoch = 0, global_step = 0;
  std::string host, status, mode, split;
  double idle = 0.0;  ///< seconds without progress while the supervisor looked
};

/// Of each interval between two looks at most twice the planned length counts: time in which this process does not run
/// either (a suspended machine) is no hang. Wall clocks are not read.
class HeartbeatWatch {
 public:
  HeartbeatWatch(std::filesystem::path directory, std::chrono::milliseconds turn);

  /// A start of the program: files that are there now are old.
  void begin();
  /// Reads the files that have changed since begin() or the last look.
  void look();
  /// Of processes that live, in the order of their ranks.
  std::vector<SeenHeartbeat> seen() const;
  bool any() const { return !seen_.empty(); }
  /// The highest global_step in any file since begin(); -1 without one.
  std::int64_t best_step() const { return best_step_; }
  /// That of the first file read since begin(); -1 without one.
  std::int64_t first_step() const { return first_step_; }

 private:
  using Stamp = std::tuple<std::uint64_t, std::int64_t, std::int64_t>;  // inode, seconds, nanoseconds
  using Files = std::map<std::filesystem::path, Stamp>;
  Files files() const;
  void read(const std::filesystem::path& path);

  std::filesystem::path directory_;
  std::chrono::milliseconds turn_;
  std::string host_;
  Files old_;
  std::map<std::filesystem::path, SeenHeartbeat> seen_;
  std::int64_t first_step_ = -1, best_step_ = -1;
  std::chrono::steady_clock::time_point last_{};
};

/// Name and state of the main thread by the kernel, such as `train: T (stopped)`; empty for a process that is gone.
std::string process_state(pid_t pid);

}  // namespace danling::inline v0::detail
