// Estimates of the time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0 {

/// Seconds per unit of work. Each time the measured time doubles, all that was measured before counts half as much: the
/// slow first steps of a run are forgotten, a pause of a moment does not show, and a lasting change of speed does.
class Pace {
 public:
  void add(double units, double seconds);
  /// With work that is not added yet; nothing before the first unit.
  std::optional<double> per_unit(double more_units = 0.0, double more_seconds = 0.0) const;

 private:
  double past_units_ = 0.0, past_seconds_ = 0.0;
  double recent_units_ = 0.0, recent_seconds_ = 0.0;
};

/// Evaluations of a split that a run still has to make, each of so many batches (0: unknown).
struct EvaluationsLeft {
  std::string split;
  std::int64_t times = 0;
  std::int64_t batches = 0;
};

/// The time left of a pass and of the run that it belongs to, from the speed of this process: work that an earlier
/// attempt did tells nothing. Times of training, of each split's evaluation and of what lies between passes (saves) are
/// measured apart, so an evaluation does not slow down the estimate of training.
///
/// A place of the run is a number in a unit of its own that training advances, such as updates.
class RunClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// A pass over a split begins, or continues at step `done` of it after another one interrupted it.
  void begin(const std::string& split, bool trains, std::int64_t done, std::int64_t total, double place,
             Clock::time_point now);
  /// Measures up to this step of the pass.
  void observe(std::int64_t done, double place, Clock::time_point now);
  /// Ends the pass at the last step that was observed.
  void end(Clock::time_point now);

  /// Nothing where the length of the pass or its speed is not known.
  std::optional<double> pass_left(std::int64_t done, Clock::time_point now) const;
  /// Of the run, which ends at the place `total`. `left` does not contain an evaluation in progress. Before a split's
  /// first evaluation, a batch of it is assumed to take a third of one in training: there is no backward pass.
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
  std::map<std::string, Pace> passes_;             // seconds per step
  std::map<std::string, std::int64_t> evaluated_;  // batches of a whole evaluation
  Pace training_;                                  // seconds per unit of the place
  Pace batches_;                                   // seconds per step of training, over all splits
  Pace gaps_;                                      // seconds between passes, per unit of the place
  std::optional<Clock::time_point> ended_;
  double gap_seconds_ = 0.0;        // since training began last
  std::optional<double> began_at_;  // the place where it did
};

}  // namespace danling::inline v0
