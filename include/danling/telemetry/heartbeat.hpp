// Heartbeat files: what a process does, written by a thread of its own, also while its loop hangs.
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
  std::filesystem::path directory = {};  ///< created when it is missing, also when it is removed later
  double interval_seconds = 60.0;
  std::string id = {}, name = {};  ///< of the run
  std::int64_t rank = 0, local_rank = 0, world_size = 1, restart_count = 0;
  std::optional<std::int64_t> steps = {}, epochs = {};  ///< planned; `progress` of the file is the part that is done
  /// Receives each distinct failure to write, once, from the heartbeat's thread; by default stderr does.
  std::function<void(std::string_view message)> warn = {};
};

/// Writes `rank-00000.json` into a directory, atomically: at once, at every interval, at a change of status, and at the
/// end. Under `danling supervise` it writes a copy into the directory that the variable DANLING_HEARTBEATS names, and
/// adds DANLING_RESTARTS to the restart count. A failure to write is reported and retried with the next beat.
///
/// The file holds status (starting, running, terminating, closed), event, updated_at_unix, last_progress_at_unix,
/// seconds_since_progress, id, name, hostname, pid, rank, local_rank, world_size, mode, split, global_step, micro_step,
/// epoch, restart_count, progress, and steps and epochs where they are known (DanLing's RunnerSupervisor). After a
/// crash of the process it stays as it was, with an old `updated_at_unix`.
class Heartbeat {
 public:
  /// Starts the thread. @throws ConfigError when the interval is not above 0
  Heartbeat(HeartbeatOptions options, std::shared_ptr<const LoopProgress> progress);
  /// Calls stop(). In a process forked from the one of the constructor it does nothing.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Changes the status, and wakes the thread to write it; does not wait.
  void set_status(std::string_view status, std::string_view event);
  /// For a process whose place among the others has changed.
  void set_rank(std::int64_t rank, std::int64_t local_rank, std::int64_t world_size);
  /// Writes the last status and ends the thread; with a disk that does not answer, leaves both after five seconds. Safe
  /// to call twice.
  void stop(std::string_view event = "shutdown");

  /// `rank-00003.json`
  static std::string file_name(std::int64_t rank);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace danling::inline v0
