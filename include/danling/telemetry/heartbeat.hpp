// Heartbeat: a thread writes the state of the process to a file, even while the loop hangs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <danling/telemetry/loop_progress.hpp>

namespace danling::inline v0 {

struct HeartbeatOptions {
  std::filesystem::path directory = {};  ///< created if missing, also if it is removed later
  double interval_seconds = 60.0;
  std::string id = {}, name = {};  ///< id and name of the run
  std::int64_t rank = 0, local_rank = 0, world_size = 1, restart_count = 0;
  std::optional<std::int64_t> steps = {}, epochs = {};  ///< planned totals, from which `progress` is computed
  /// Called in the heartbeat's thread when a write fails with another error than the last one; the default writes to
  /// stderr. Must not call the heartbeat, which would deadlock.
  std::function<void(std::string_view message)> warn = {};
};

/// Writes `rank-00000.json` into a directory, atomically: at the start, at every interval, at a change of status, and
/// at the end. Under `danling supervise` it also writes a copy into the directory in the variable DANLING_HEARTBEATS,
/// and adds DANLING_RESTARTS to the restart count. Logs a write error and retries with the next beat.
///
/// The file contains status (starting, running, terminating, closed), event, updated_at_unix, last_progress_at_unix,
/// seconds_since_progress, id, name, hostname, pid, rank, local_rank, world_size, mode, split, global_step, micro_step,
/// epoch, restart_count, progress, and, if known, steps and epochs (DanLing's RunnerSupervisor). If the process
/// crashes, the file remains with an old `updated_at_unix`.
class Heartbeat {
 public:
  /// Starts the thread. @throws ConfigError unless the interval is above 0
  Heartbeat(HeartbeatOptions options, std::shared_ptr<const LoopProgress> progress);
  /// Calls stop(). Does nothing in a forked process.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Changes the status and wakes the thread to write it; does not wait.
  void set_status(std::string_view status, std::string_view event);
  /// Changes the rank, for a process that gets another rank.
  void set_rank(std::int64_t rank, std::int64_t local_rank, std::int64_t world_size);
  /// Writes the last status and ends the thread. If the disk does not respond, stops waiting after five seconds and
  /// detaches the thread. Safe to call twice.
  void stop(std::string_view event = "shutdown");

  /// Returns `rank-00003.json` for rank 3.
  static std::string file_name(std::int64_t rank);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace danling::inline v0
