// Interface of metrics to a runner.
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

/// Measured values, independent of their input. Updates do not wait for the device; reads do. Reads are local to the
/// rank: only `synchronize` communicates.
class MetricsBase {
 public:
  virtual ~MetricsBase();

  /// Clears all batches. Called at the start of each epoch and evaluation.
  virtual void reset() = 0;

  // For batches that a process computes in parts, such as the shards of a step. The runner calls one of these before
  // each part, perhaps not before the first, also on ranks and for parts without an update. Without a call, each update
  // is a batch. They make results independent of the distribution of parts over ranks. The default does nothing, which
  // suits classes whose averages depend on neither order nor batches; `value` and `batch` then read the last part.
  /// The next update is the next part of the same batch as the last update.
  virtual void continue_batch();
  /// The next update is the first or the next part of the batch with this number, such as a step. The number is the
  /// same on all ranks and never decreases until `reset()`.
  virtual void begin_batch(std::int64_t index);

  /// Values of the last batch on this rank, over all its parts.
  virtual Result value() const = 0;
  /// Values of the last batch over all ranks, as of the last `synchronize()`; after a further update, as `value()`.
  virtual Result batch() const = 0;
  /// Values of all batches since `reset()`: over all ranks as of the last `synchronize()`; after a further update, over
  /// this rank.
  virtual Result average() const = 0;
  /// The weight of the last batch by metric, over the same ranks as `batch`.
  virtual Result n() const = 0;
  /// The weight of all batches by metric, over the same ranks as `average`.
  virtual Result count() const = 0;

  /// Combines the ranks of `group`. Every rank must call it at the same point, also one without data. The loops call it
  /// at log boundaries and ends. Does not change the local sums. No effect in a world of one.
  /// @throws MetricError on all ranks when their data cannot be combined.
  virtual void synchronize(const Group& group) = 0;

  /// State of this rank. A restored state continues an epoch or evaluation with the same numbers.
  virtual State state_dict() const = 0;
  /// @throws StateError, changing nothing, when the state does not fit.
  virtual void load_state_dict(const State& state) = 0;
  /// Merges the states of all ranks, given in rank order, so that a run can resume with other ranks: if one rank loads
  /// the result and the others are reset, `synchronize` yields the same values as before, bit for bit in the library's
  /// classes. Reads no data of this object. @throws StateError when the states do not match; the default always throws.
  virtual State merge_states(std::span<const State> states) const;
  /// The part of a merged state for a rank that computes the parts [begin, end) of each batch; empty if the rank must
  /// reset instead. Together the ranks then continue as the saved ranks would. By default the rank with `begin` 0 loads
  /// the whole state.
  virtual std::optional<State> share_of_state(const State& merged, std::int64_t begin, std::int64_t end) const;

  /// True if a higher value of this metric is better; empty for unknown names and if neither direction is better.
  virtual std::optional<bool> higher_is_better(std::string_view name) const;

  /// `acc: 0.9000 (0.8000)` per metric, separated by tabs: last batch and average. Waits for the device.
  virtual std::string text(int precision = 4) const;
};

/// Metrics of predictions and targets, as the default steps of a runner produce them.
class Metrics : public MetricsBase {
 public:
  ~Metrics() override;

  /// Called once per batch, in training and evaluation, on every rank.
  virtual void update(const at::Tensor& prediction, const at::Tensor& target) = 0;
};

}  // namespace danling::inline v0
