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
  double smoothed = 0.0;  ///< bias-corrected running average of the loss
};

/// Result of find_lr: losses at growing learning rates, and the two usual suggestions.
struct LearningRateReport {
  std::vector<LearningRatePoint> points;
  bool diverged = false;  ///< ended early, because the loss grew too large
  // Suggestions from the first valley of the smoothed loss, after the first ten points. Empty when the valley is no
  // deeper than the noise of the losses.
  /// The rate where the smoothed loss falls fastest (over the logarithm of the rate), after a tenth of the fall and
  /// before the minimum. Lightning's suggestion, fastai's "steep".
  std::optional<double> steepest;
  /// A tenth of the rate at the minimum: fastai's "minimum".
  std::optional<double> minimum;

  std::optional<double> suggestion() const { return steepest; }
  /// Sets `steepest` and `minimum` from the points, whose rates grow by a constant factor.
  void find_suggestions();
  /// A terminal plot of the losses over the logarithm of the rate, and the suggestions as text.
  std::string text() const;
  /// The plot as an SVG document.
  std::string svg() const;
};

/// One batch size that find_batch_size tried.
struct BatchSizePoint {
  std::int64_t batch_size = 0;  ///< per process
  bool fits = false;
  double samples_per_s = 0.0;
  std::int64_t peak_bytes = 0;  ///< of model, gradients, optimizer state and a step
};

/// Result of find_batch_size: the sizes that fit into memory, and their speed.
struct BatchSizeReport {
  std::vector<BatchSizePoint> points;  ///< by size
  std::int64_t largest = 0;            ///< largest size that fits; 0: none
  /// The smallest size with at least 95 % of the highest measured rate; 0: none fits.
  std::int64_t recommended = 0;
  std::string ended_by;          ///< why no larger size was tried: "memory", "the data" or "max"
  std::int64_t limit_bytes = 0;  ///< memory limit, configured or measured; 0: only the device's memory
  std::string limit_source;      ///< "memory_limit", "half of the available memory" or "the device"

  /// Sets `largest` and `recommended` from the points.
  void find_recommended();
  /// A table, and a terminal plot of the rate over the logarithm of the size.
  std::string text() const;
  /// The plot as an SVG document.
  std::string svg() const;
};

}  // namespace danling::inline v0
