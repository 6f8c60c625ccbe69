// Batch samplers: choose the records of whole batches, such as samples of similar length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Sizes of a loader's batches.
struct BatchShape {
  /// Maximum number of samples in the batch of one share.
  std::int64_t batch_size = 1;
  /// Number of shares in a global batch: one per process, or per part (`Shard::num_shares`).
  std::int64_t world_size = 1;
  /// Drops samples at the end of an epoch that do not fill a global batch.
  bool drop_last = false;

  std::int64_t global_size() const { return world_size * batch_size; }
};

/// Chooses the records of each global batch. One thread at a time calls its functions, but not always the same thread;
/// loaders read ahead, and save the state after the last delivered batch. Each process has a separate sampler, and all
/// must return the same batches.
class BatchSampler {
 public:
  virtual ~BatchSampler();

  /// Number of samples in an epoch, if known before the epoch ends.
  virtual std::optional<std::int64_t> size() const { return std::nullopt; }
  /// Number of global batches in an epoch of this shape, if known before the epoch ends.
  virtual std::optional<std::int64_t> length(const BatchShape& shape) const {
    (void)shape;
    return std::nullopt;
  }
  /// Moves to the beginning of `epoch`. Called before the first `next` of each epoch, except when `load_state_dict`
  /// resumes within the epoch.
  virtual void set_epoch(std::int64_t epoch) = 0;
  /// Writes the records of the next global batch to the front of `indices` and returns their number; 0 at the end of
  /// the epoch, and on further calls. `indices` has room for `shape.global_size()` records, or for `size()` if that is
  /// known and smaller.
  ///
  /// Any batch may be smaller (for a limit of tokens). Processes divide it as evenly as possible, in blocks: return a
  /// multiple of `world_size` for equal shares; fewer than `world_size` records join the next batch. The sampler itself
  /// drops records for `drop_last`; it keeps them in its state and returns them if a later call has no `drop_last`.
  virtual std::int64_t next(const BatchShape& shape, std::span<std::int64_t> indices) = 0;
  /// Returns the number of leading `records` that form a global batch: at least `world_size` if there are enough.
  /// Called when loaders regroup batches after resuming with another shape.
  virtual std::int64_t fit_batch(const BatchShape& shape, std::span<const std::int64_t> records) const {
    return std::min(static_cast<std::int64_t>(records.size()), shape.global_size());
  }
  /// True if an epoch repeats records; their keys then also depend on the position.
  virtual bool repeats() const { return false; }

  /// Returns the state, including buffers: after `load_state_dict`, `next` continues from there. Called after every
  /// batch, and its tensors are copied: keep it small.
  virtual State state_dict() const = 0;
  /// @throws StateError when the state is of another type or other records.
  virtual void load_state_dict(const State& state) = 0;
};

}  // namespace danling::inline v0::data
