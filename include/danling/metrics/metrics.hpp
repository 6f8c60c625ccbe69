// The interface between a runner and its metrics.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/core/result.hpp>
#include <danling/distributed/group.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Measured values, whatever their input. Updates do not wait for the device; reads do. Reads are local to the rank:
/// only `synchronize` communicates.
class MetricsBase {
 public:
  virtual ~MetricsBase();

  /// Clears all batches. Called at the start of each epoch and evaluation.
  virtual void reset() = 0;

  /// Values of the last batch on this rank.
  virtual Result value() const = 0;
  /// Values of the last batch of all ranks, as of the last `synchronize()`; between an update and the next
  /// `synchronize()`, as `value()`.
  virtual Result batch() const = 0;
  /// Values of all batches since `reset()`: of all ranks as of the last `synchronize()`; between an update and the next
  /// `synchronize()`, of this rank.
  virtual Result average() const = 0;
  /// The weight of the last batch, and of all batches, by metric; over the same ranks as `batch` and `average`.
  virtual Result n() const = 0;
  virtual Result count() const = 0;

  /// Combines the ranks of `group`, on all of which it must be called, at the same point. Called by the loops at log
  /// boundaries and ends. Does not change the local sums; a rank without data joins too. No effect in a world of
  /// one. @throws MetricError on all ranks when their data cannot be combined.
  virtual void synchronize(const Group& group) = 0;

  /// State of this rank; restoring it in the middle of an epoch or evaluation continues with the same numbers.
  virtual State state_dict() const = 0;
  /// @throws StateError, changing nothing, when the state does not fit.
  virtual void load_state_dict(const State& state) = 0;

  /// Whether a higher value of this metric is better; nothing for unknown names and if neither is.
  virtual std::optional<bool> higher_is_better(std::string_view name) const;

  /// `acc: 0.9000 (0.8000)` per metric, between tabs: last batch and average. Waits for the device.
  virtual std::string text(int precision = 4) const;
};

/// Metrics of predictions and targets, as the default steps of a runner produce them.
class Metrics : public MetricsBase {
 public:
  ~Metrics() override;

  /// Called once per batch, in training and evaluation, on every rank.
  virtual void update(const at::Tensor& prediction, const at::Tensor& target) = 0;
  /// The same for one tensor per sample, whose sizes may differ.
  void update_samples(at::TensorList predictions, at::TensorList targets);
};

}  // namespace danling::inline v0
