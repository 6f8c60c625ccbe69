// Orders of whole batches that cannot be computed from the position, such as samples of similar length together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Size of a loader's batches.
struct BatchShape {
  /// Samples in the batch of one share, at most.
  std::int64_t batch_size = 1;
  /// Shares of a global batch: one for each process, or for each part (`Shard::parts`).
  std::int64_t world_size = 1;
  /// Leaves out the samples at the end of an epoch that do not fill a global batch.
  bool drop_last = false;

  std::int64_t global_size() const { return world_size * batch_size; }
};

/// Chooses the records of each global batch. One thread at a time calls its functions, though not always the same;
/// loaders read ahead, and save its state behind the last delivered batch. Every process has a separate one, and all
/// must return the same batches.
class BatchSampler {
 public:
  virtual ~BatchSampler();

  /// Samples in an epoch, if known before it ends.
  virtual std::optional<std::int64_t> size() const { return std::nullopt; }
  /// Global batches in an epoch of this shape, if known before it ends.
  virtual std::optional<std::int64_t> length(const BatchShape& shape) const {
    (void)shape;
    return std::nullopt;
  }
  /// Moves to the beginning of `epoch`. Called before the first `next` of each epoch, except when `load_state_dict`
  /// resumes within the epoch.
  virtual void set_epoch(std::int64_t epoch) = 0;
  /// Writes the records of the next global batch to the front of `indices` and returns their number; 0 at the end of
  /// the epoch, and from then on. `indices` has room for `shape.global_size()`, or for `size()` if that is known and
  /// less. Any batch may have fewer (a limit of tokens): processes share them as evenly as can be, in blocks, so use a
  /// multiple of `world_size` for equal shares; fewer than `world_size` join the next batch. The sampler itself leaves
  /// out the records for `drop_last`, keeps them in its state, and returns them if called later without `drop_last`.
  virtual std::int64_t next(const BatchShape& shape, std::span<std::int64_t> indices) = 0;
  /// Number of leading `records` that form a global batch: at least `world_size` if there are as many. Called when
  /// loaders regroup batches after resuming with another shape.
  virtual std::int64_t fit_batch(const BatchShape& shape, std::span<const std::int64_t> records) const {
    return std::min(static_cast<std::int64_t>(records.size()), shape.global_size());
  }
  /// Whether an epoch repeats records; their keys then depend on the position too.
  virtual bool repeats() const { return false; }

  /// Current state, buffers included: after `load_state_dict` of it, `next` continues from there. Taken after every
  /// batch, and its tensors copied: keep it small.
  virtual State state_dict() const = 0;
  /// @throws StateError when the state is of another kind, or of other records.
  virtual void load_state_dict(const State& state) = 0;
};

}  // namespace danling::inline v0::data
