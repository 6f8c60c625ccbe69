// SweepState: the progress of a sweep, stored in sweep.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sweep_spec.hpp"

namespace danling_command {

struct Trial {
  std::int64_t number = 0;
  TrialValues values;
  /// waiting, running, finished (up to the current goal), stopped (continues from its checkpoint) or failed.
  std::string status = "waiting";
  /// The best score up to each reached goal, and its epoch or step; without rungs the goal is 0.
  struct Score {
    std::int64_t goal = 0;
    double score = 0;
    std::int64_t index = 0;
  };
  std::vector<Score> scores;
  double seconds = 0;  ///< total time of its processes
  std::int64_t starts = 0;
  std::string error;
  std::uint64_t peak_bytes = 0;
  std::string run;  ///< directory of its run

  /// Returns a name such as `trial-007`.
  std::string name() const;
  const Score* score_of(std::int64_t goal) const;
  const Score* last_score() const { return scores.empty() ? nullptr : &scores.back(); }
};

/// The trials of a sweep and its directory:
///
///     <dir>/sweep.json  report.html  .lock
///       logs/trial-000.log  locks/trial-000  runs/trial-000/<run id>/
class SweepState {
 public:
  /// Locks the directory, and reads the state of an earlier process or begins a new sweep.
  /// @throws danling::ConfigError if the directory contains another sweep, danling::StateError if a process runs this
  /// one
  SweepState(std::filesystem::path dir, const SweepSpec& spec);
  ~SweepState();
  SweepState(const SweepState&) = delete;
  SweepState& operator=(const SweepState&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path log_of(const Trial& trial) const { return dir_ / "logs" / (trial.name() + ".log"); }
  std::filesystem::path lock_of(const Trial& trial) const { return dir_ / "locks" / trial.name(); }
  std::filesystem::path runs_dir() const { return dir_ / "runs"; }
  std::vector<Trial>& trials() { return trials_; }
  const std::vector<Trial>& trials() const { return trials_; }
  /// True if an earlier process began the sweep.
  bool continues() const { return continues_; }

  /// Writes sweep.json. `status` of the sweep is running, finished, stopped or failed. Logs a disk error once and
  /// continues.
  void save(const std::string& status);

  /// Returns the trials with a score, sorted by goal and score, then the other trials in order.
  std::vector<const Trial*> ranking() const;

 private:
  void load();

  std::filesystem::path dir_;
  const SweepSpec& spec_;
  std::vector<Trial> trials_;
  bool continues_ = false;
  int lock_ = -1;
  std::string last_error_;
};

}  // namespace danling_command
