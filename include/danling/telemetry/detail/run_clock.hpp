// RunClock: estimates the remaining time of passes and of the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0 {

/// Estimates the seconds per unit of work. Each time the measured time doubles, the weight of older measurements
/// halves. So slow first steps are forgotten, a short pause has little effect, and a lasting change of speed shows.
class RateEstimator {
 public:
  void add(double units, double seconds);
  /// Returns the estimate, including work that is not added yet; nullopt before the first unit.
  std::optional<double> per_unit(double more_units = 0.0, double more_seconds = 0.0) const;

 private:
  double past_units_ = 0.0, past_seconds_ = 0.0;
  double recent_units_ = 0.0, recent_seconds_ = 0.0;
};

/// The remaining evaluations of a split in a run; each has `batches` batches (0: unknown).
struct EvaluationsLeft {
  std::string split;
  std::int64_t times = 0;
  std::int64_t batches = 0;
};

/// Estimates the remaining time of a pass and of its run by the speed of this process, ignoring earlier attempts.
/// Measures training, the evaluation of each split and the time between passes (saves) separately, so that an
/// evaluation does not distort the estimate of training.
///
/// `place` is the position of the run in a unit that training advances, such as updates.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins a pass over a split, or continues it at step `done` after another pass interrupted it.
  void begin(const std::string& split, bool trains, std::int64_t done, std::int64_t total, double place,
             Clock::time_point now);
  /// Measures the time up to this step of the pass.
  void observe(std::int64_t done, double place, Clock::time_point now);
  /// Ends the pass at the last observed step.
  void end(Clock::time_point now);

  /// Returns the remaining seconds of the pass; nullopt if its length or speed is unknown.
  std::optional<double> pass_left(std::int64_t done, Clock::time_point now) const;
  /// Returns the remaining seconds of the run, which ends at the place `total`. `left` excludes an evaluation in
  /// progress. Before the first evaluation of a split, assumes that a batch takes a third of the time of a training
  /// step, since there is no backward pass.
  std::optional<double> run_left(double place, double total, const std::vector<EvaluationsLeft>& left,
                                 std::int64_t done, Clock::time_point now) const;

 private:
  struct Pass {
    std::string key;
    bool trains;
    std::int64_t done, total;
    double place;
    Clock::time_point time;
  };

  double evaluation_seconds(const EvaluationsLeft& evaluation) const;

  std::optional<Pass> pass_;
  std::map<std::string, RateEstimator> passes_;    // seconds per step
  std::map<std::string, std::int64_t> evaluated_;  // batches of a whole evaluation
  RateEstimator training_;                         // seconds per unit of the place
  RateEstimator batches_;                          // seconds per step of training, over all splits
  RateEstimator gaps_;                             // seconds between passes, per unit of the place
  std::optional<Clock::time_point> ended_;
  double gap_seconds_ = 0.0;        // since the last start of training
  std::optional<double> began_at_;  // the place of that start
};

}  // namespace danling::inline v0
