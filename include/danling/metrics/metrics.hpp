// The interface between a runner and its metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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

  // For batches that a process computes in parts, such as the shards of one step: one of these is called before each
  // part but perhaps the first, also on ranks and for parts without an update. Without a call, each update is a batch.
  // They make results independent of how the parts are spread over ranks. By default they do nothing, which suits
  // classes whose averages depend on neither order nor batches; `value` and `batch` then read the last part.
  /// The next update is the next part of the same batch as the last one.
  virtual void continue_batch();
  /// The next update is the first part, or the next part, of the batch with this number, such as a step, which is the
  /// same on all ranks and never falls until `reset()`.
  virtual void begin_batch(std::int64_t index);

  /// Values of the last batch on this rank, all its parts together.
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
  /// One state for those of several ranks, in their order, for a run that resumes with other ranks: after one rank has
  /// loaded it and the others are reset, `synchronize` yields what it did before, to the bit in the library's classes.
  /// Reads no data of this object. @throws StateError when they do not fit together, and by default, naming the class.
  virtual State merge_states(std::span<const State> states) const;
  /// What a rank loads of a merged state, if it goes on with the parts [begin, end) of each batch; nothing if it is
  /// reset instead. Together, the ranks then go on as if there had never been others. By default the rank with `begin`
  /// 0 loads all of it.
  virtual std::optional<State> share_of_state(const State& merged, std::int64_t begin, std::int64_t end) const;

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
