// The progress of a sweep, stored in its sweep.json.
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
  /// waiting, running, finished (of its present goal), stopped (goes on from its checkpoint) or failed.
  std::string status = "waiting";
  /// Best score up to each goal that it has reached, and where that was; the goal of a sweep without rungs is 0.
  struct Score {
    std::int64_t goal = 0;
    double score = 0;
    std::int64_t index = 0;
  };
  std::vector<Score> scores;
  double seconds = 0;  ///< of all its processes
  std::int64_t starts = 0;
  std::string error;
  std::uint64_t peak_bytes = 0;
  std::string run;  ///< its run's directory

  /// `trial-007`.
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
  /// Reads what an earlier process left in the directory, or begins. Locks the directory.
  /// @throws danling::ConfigError when it holds another sweep, danling::StateError when a process runs this one
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
  /// Whether an earlier process had begun.
  bool continues() const { return continues_; }

  /// Writes sweep.json; `status` is that of the sweep: running, finished, stopped or failed. A disk error is logged
  /// once and does not end the sweep.
  void save(const std::string& status);

  /// Trials with a score, the furthest and best first, then the others in order.
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
