// What the loader's machinery asks of a source, without knowing the type of its batches.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <danling/data/batch_info.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data::detail {

/// Where a stream or a batch sampler was at a position of its order.
struct Snapshot {
  std::int64_t position = 0;
  State state;
  /// Batches that the batch sampler had given, and nobody got.
  std::deque<std::vector<std::int64_t>> pending = {};
};

/// One batch on its way: what it is to hold, and, in a class of its own, the batch.
class BatchSlot {
 public:
  enum class Stage { free, planning, waiting, reading, ready, failed, shown };

  virtual ~BatchSlot();
  /// Drops the batch and what it would have been made of.
  virtual void drop() = 0;

  BatchInfo info;
  /// Of the batch in the plan of the epoch, which all ranks share.
  std::int64_t step = 0;
  /// Samples of the global batch that are wanted; before and after those of this rank, a stream passed over some.
  std::int64_t wanted = 0;
  std::int64_t before = 0;
  std::int64_t after = 0;
  /// Samples, when the batch was read.
  std::int64_t size = 0;
  /// Of a stream, at or before the global batch.
  std::shared_ptr<const Snapshot> snapshot;
  /// At or before what follows the global batch: the loader's state, once this is delivered. It depends on the batch
  /// alone, not on what was read ahead.
  std::shared_ptr<const Snapshot> next_snapshot;
  /// The records of the global batch, where no position says which they are.
  std::vector<std::int64_t> group;

  /// Of who carries it.
  Stage stage = Stage::free;
  bool planned = false;
  std::int64_t number = 0;
  bool in_turn = false;  // comes after all that were planned before it, and before all others, even out of order
  std::exception_ptr error;
};

/// Reads batches into slots.
class BatchReader {
 public:
  virtual ~BatchReader();

  virtual std::unique_ptr<BatchSlot> make_slot() const = 0;
  /// The batch of a slot that was planned; gives its number of samples. In any thread, several at a time; again after
  /// an exception.
  virtual std::int64_t read(BatchSlot& slot) = 0;
  /// Gives the batch its info, and page-locked memory where that was asked for.
  virtual void finish(BatchSlot& slot) = 0;

  /// Nothing for a stream; what follows is for streams, one thread at a time.
  virtual std::optional<std::int64_t> size() const = 0;
  /// The stream, to tell it from others; null for a dataset.
  virtual const void* stream() const = 0;
  /// Reads what the batch of `slot.info.indices` is made of; false at the end.
  virtual bool prepare(BatchSlot& slot) = 0;
  virtual std::int64_t skip(std::int64_t num_samples) = 0;
  virtual void reset(std::int64_t epoch) = 0;
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;
};

}  // namespace danling::inline v0::data::detail
