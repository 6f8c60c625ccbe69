// Orders of whole batches that cannot be computed from the position, such as samples of similar length together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// How large the batches of a loader are.
struct BatchShape {
  /// Samples in the batch of one process, at most.
  std::int64_t batch_size = 1;
  /// Processes that share a global batch.
  std::int64_t world_size = 1;
  /// Leaves out what does not fill a global batch at the end of an epoch.
  bool drop_last = false;

  std::int64_t global_size() const { return world_size * batch_size; }
};

/// Chooses the records of one global batch after another. One thread at a time calls its functions, though not always
/// the same; loaders ask ahead, and save the state that it had behind the batch that they delivered. Every process has
/// one of its own, and all must give the same batches.
class BatchSampler {
 public:
  virtual ~BatchSampler();

  /// Samples in an epoch, where they are known before it ends.
  virtual std::optional<std::int64_t> size() const { return std::nullopt; }
  /// Global batches in an epoch of this shape, where they are known before it ends.
  virtual std::optional<std::int64_t> length(const BatchShape& shape) const {
    (void)shape;
    return std::nullopt;
  }
  /// Goes to the beginning of `epoch`. Called before the first `next` of each epoch, and not after `load_state_dict`
  /// where the epoch goes on.
  virtual void set_epoch(std::int64_t epoch) = 0;
  /// Writes the records of the next global batch to the front of `indices`, which has room for `shape.global_size()`,
  /// or for `size()` where that is known and less, and gives their number; 0 at the end of the epoch, and from then on.
  /// There may be fewer in any batch (a limit of tokens): processes share them as evenly as can be, in blocks, so that
  /// a multiple of `world_size` gives all as many; fewer than `world_size` join the next batch. What `drop_last` leaves
  /// out, it leaves out itself, keeps in its state, and gives where it is asked without `drop_last` after all.
  virtual std::int64_t next(const BatchShape& shape, std::span<std::int64_t> indices) = 0;
  /// How many of `records`, the first ones, make a global batch: at least `world_size` where there are as many. Asked
  /// where loaders put batches together anew, after resuming with another shape.
  virtual std::int64_t fit(const BatchShape& shape, std::span<const std::int64_t> records) const {
    return std::min(static_cast<std::int64_t>(records.size()), shape.global_size());
  }
  /// Whether an epoch has records more than once; then their keys depend on the place too.
  virtual bool repeats() const { return false; }

  /// Where it is, buffers included: after `load_state_dict` of it, `next` gives what it would have given. Taken behind
  /// every batch, and its tensors copied: keep it small.
  virtual State state_dict() const = 0;
  /// @throws StateError when that was another kind, or of other records.
  virtual void load_state_dict(const State& state) = 0;
};

}  // namespace danling::inline v0::data
