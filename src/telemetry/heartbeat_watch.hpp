// HeartbeatWatch: reads the heartbeat files of a directory and measures how long each process made no progress.
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

/// The content of the heartbeat file of a process.
struct SeenHeartbeat {
  pid_t pid = 0;
  std::int64_t rank = 0, world_size = 1, epoch = 0, global_step = 0;
  std::string host, status, mode, split;
  double idle = 0.0;  ///< seconds without progress, measured by this process
};

/// Each interval between two look() calls counts at most twice its planned length: time during which this process does
/// not run either (a suspended machine) is not a hang. Does not read wall clocks.
class HeartbeatWatch {
 public:
  HeartbeatWatch(std::filesystem::path directory, std::chrono::milliseconds turn);

  /// Begins a start of the program: ignores existing files until they change.
  void begin();
  /// Reads the files that changed since begin() or the last look().
  void look();
  /// The heartbeats of running processes, in the order of their ranks.
  std::vector<SeenHeartbeat> seen() const;
  bool any() const { return !seen_.empty(); }
  /// The highest global_step in any file since begin(); -1 if there is none.
  std::int64_t best_step() const { return best_step_; }
  /// The global_step of the first file read since begin(); -1 if there is none.
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

/// Returns the kernel's name and state of the main thread, such as `train: T (stopped)`; empty if the process has
/// ended.
std::string process_state(pid_t pid);

}  // namespace danling::inline v0::detail
