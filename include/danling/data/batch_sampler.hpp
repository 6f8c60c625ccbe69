// Orders of whole batches that cannot be computed from the position, such as samples of similar length together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Chooses the records of one global batch after another. One thread at a time calls its functions, though not always
/// the same; loaders with workers and those that look for the end ask ahead, and keep what they did not deliver in
/// their own state. Every process has one of its own, and all must give the same batches.
class BatchSampler {
 public:
  virtual ~BatchSampler();

  /// Samples in an epoch, where they are known before it ends.
  virtual std::optional<std::int64_t> size() const { return std::nullopt; }
  /// Global batches in an epoch when each may have `num_samples`, where they are known before it ends.
  virtual std::optional<std::int64_t> length(std::int64_t num_samples) const {
    (void)num_samples;
    return std::nullopt;
  }
  /// Goes to the beginning of `epoch`. Called before the first `next` of each epoch, and not after `load_state_dict`
  /// where the epoch goes on.
  virtual void set_epoch(std::int64_t epoch) = 0;
  /// Writes the records of the next global batch to the front of `indices` and gives their number: world_size *
  /// batch_size, which is the length of `indices`, or fewer where no more fit together; 0 at the end of the epoch.
  virtual std::int64_t next(std::span<std::int64_t> indices) = 0;
  /// Whether an epoch has records more than once; then their keys depend on the place too.
  virtual bool repeats() const { return false; }

  /// Where it is, buffers included: after `load_state_dict` of it, `next` gives what it would have given.
  virtual State state_dict() const = 0;
  /// @throws StateError when that was another kind, or of other records.
  virtual void load_state_dict(const State& state) = 0;
};

}  // namespace danling::inline v0::data
