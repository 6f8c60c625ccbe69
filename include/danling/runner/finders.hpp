// Results of the learning rate finder and of the batch size finder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/runner/finder_options.hpp>

namespace danling::inline v0 {

/// One update of find_lr.
struct LearningRatePoint {
  double lr = 0.0;
  double loss = 0.0;      ///< of the update's window, before the update
  double smoothed = 0.0;  ///< its running average, corrected for its start
};

/// Losses of a training whose rate grew, and the two usual readings of them.
struct LearningRateReport {
  std::vector<LearningRatePoint> points;
  bool diverged = false;  ///< ended before the last rate, since the loss grew beyond bounds
  // Read in the first valley of the smoothed loss, behind the first ten points. Nothing where it is no deeper than the
  // noise of the losses.
  /// Where the smoothed loss falls fastest, per factor of the rate, between a tenth of the fall and the minimum: the
  /// suggestion of Lightning, and fastai's "steep".
  std::optional<double> steepest;
  /// A tenth of the rate at the minimum: fastai's "minimum".
  std::optional<double> minimum;

  std::optional<double> suggestion() const { return steepest; }
  /// Sets `steepest` and `minimum` from the points, whose rates grow by one factor.
  void find_suggestions();
  /// The losses over the logarithm of the rate, for a terminal, and the suggestions in words.
  std::string text() const;
  /// The same picture as an SVG document.
  std::string svg() const;
};

/// One batch size that find_batch_size tried.
struct BatchSizePoint {
  std::int64_t batch_size = 0;  ///< per process
  bool fits = false;
  double samples_per_s = 0.0;
  std::int64_t peak_bytes = 0;  ///< of model, gradients, optimizer and a step
};

/// Batch sizes that fit into memory, and how fast they train.
struct BatchSizeReport {
  std::vector<BatchSizePoint> points;  ///< by size
  std::int64_t largest = 0;            ///< that fits; 0: none
  /// The smallest that trains at 95 % of the highest measured rate or more; 0: none fits.
  std::int64_t recommended = 0;
  std::string ended_by;          ///< why no larger one was tried: "memory", "the data" or "max"
  std::int64_t limit_bytes = 0;  ///< of memory, as configured or found; 0: none but the device's
  std::string limit_source;      ///< "memory_limit", "half of the available memory" or "the device"

  /// Sets `largest` and `recommended` from the points.
  void find_recommended();
  /// A table, and the rate over the logarithm of the size for a terminal.
  std::string text() const;
  /// The picture as an SVG document.
  std::string svg() const;
};

}  // namespace danling::inline v0
