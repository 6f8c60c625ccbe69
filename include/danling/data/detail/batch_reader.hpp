// Interface between the loader and its source, independent of the batch type.
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

/// State of a stream or a batch sampler at a position in its order.
struct Snapshot {
  std::int64_t position = 0;
  State state;
  /// Batches that the batch sampler has returned, but the loader has not delivered.
  std::deque<std::vector<std::int64_t>> pending = {};
};

/// One batch in the pipeline: its plan and, in a derived class, the batch. The pipeline plans, reads and delivers whole
/// steps: the slot of a process's first part owns the slots of its other parts.
class BatchSlot {
 public:
  enum class Stage { free, planning, waiting, reading, ready, failed, to_retry };

  virtual ~BatchSlot();
  /// Drops the batch and the data read for it.
  virtual void drop() = 0;
  /// Copies `info` to the info of the batch, which gets the memory of `spare`. Takes over the entry keys that the
  /// dataset set there.
  void copy_info(BatchInfo& of_batch, BatchInfo& spare);
  /// Swaps the containers of two infos.
  static void swap_memory(BatchInfo& one, BatchInfo& other);

  BatchInfo info;
  /// Number of samples in the batch, once it is read.
  std::int64_t size = 0;

  // Of the step; set in the slot of the first part.

  /// Slots of the other parts (`Shard::num_shares`), and the number of parts with samples, which come first.
  std::vector<std::unique_ptr<BatchSlot>> others;
  std::int64_t num_parts = 1;
  BatchSlot& part(std::int64_t i) { return i == 0 ? *this : *others[static_cast<std::size_t>(i - 1)]; }
  void drop_parts() {
    drop();
    for (const auto& other : others) {
      other->drop();
    }
  }

  /// Index of the global batch in the plan of the epoch, which all ranks share.
  std::int64_t step = 0;
  /// Number of samples requested for the global batch; number of samples that a stream skipped before and after this
  /// process's.
  std::int64_t wanted = 0;
  std::int64_t before = 0;
  std::int64_t after = 0;
  /// State of a stream at or before the start of the global batch.
  std::shared_ptr<const Snapshot> snapshot;
  /// State at or before the start of the next global batch: the loader's state after this batch is delivered. Depends
  /// only on the batch, not on read-ahead.
  std::shared_ptr<const Snapshot> next_snapshot;
  /// Record indices of the global batch, if its position does not determine them.
  std::vector<std::int64_t> group;

  /// Used by the pipeline.
  Stage stage = Stage::free;
  bool planned = false;
  std::int64_t number = 0;
  bool in_turn = false;  // delivered after all batches planned before it and before all later ones, even with in_order:
                         // false
  std::exception_ptr error;
};

/// Reads batches into slots.
class BatchReader {
 public:
  virtual ~BatchReader();

  virtual std::unique_ptr<BatchSlot> make_slot() const = 0;
  /// Reads the batch of a planned slot; returns its number of samples. Called in any thread, several at a time, and
  /// again after an exception.
  virtual std::int64_t read(BatchSlot& slot) = 0;
  /// Sets the batch's info; moves the batch to page-locked memory if requested.
  virtual void finish(BatchSlot& slot) = 0;

  /// nullopt for a stream. The functions below are for streams, called in one thread at a time.
  virtual std::optional<std::int64_t> size() const = 0;
  /// Returns the identity of the stream; null for a dataset.
  virtual const void* stream() const = 0;
  /// Reads the data for the batch of `slot.info.indices`; returns false at the end.
  virtual bool prepare(BatchSlot& slot) = 0;
  virtual std::int64_t skip(std::int64_t num_samples) = 0;
  virtual void reset(std::int64_t epoch) = 0;
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;
};

}  // namespace danling::inline v0::data::detail
