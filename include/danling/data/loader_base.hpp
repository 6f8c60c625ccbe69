// The part of a loader that does not depend on the batch type: epochs, positions, state. Used by training loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <danling/data/batch_info.hpp>
#include <danling/data/detail/batch_reader.hpp>
#include <danling/data/loader_options.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {
struct LoaderEngine;

/// True if an accelerator copies faster from page-locked memory.
bool can_use_pinned_memory();

/// Counts the visits of a loader. Moving the loader ends the current visit, which refers to it by address.
class VisitCount {
 public:
  VisitCount() = default;
  VisitCount(VisitCount&& other) noexcept : count_(++other.count_) {}
  VisitCount& operator=(VisitCount&& other) noexcept {
    count_ = std::max(count_, ++other.count_) + 1;
    return *this;
  }
  std::int64_t operator++() { return ++count_; }
  std::int64_t get() const { return count_; }

 private:
  std::int64_t count_ = 0;
};
}  // namespace detail

/// Iterates over epochs batch by batch. After `start_epoch`, each `next()` makes one batch current. Use it in one
/// thread. A moved-from loader can only be destroyed or assigned to; the move ends visits and iterators.
///
/// With `Shard::num_shares`, a process gets several batches of each global batch, by one `next()` each. Lengths,
/// positions, steps and states count global batches, so they do not depend on the number of processes. A global batch
/// counts as delivered with the process's last part; all parts are read before the first is delivered.
class LoaderBase {
 public:
  virtual ~LoaderBase();
  LoaderBase(const LoaderBase&) = delete;
  LoaderBase& operator=(const LoaderBase&) = delete;

  const LoaderOptions& options() const { return options_; }
  /// Number of samples in an epoch, over all ranks; nullopt if unknown, as for a stream.
  std::optional<std::int64_t> num_samples() const;
  /// Number of batches of this rank in an epoch (global batches in which it has samples); nullopt if unknown.
  std::optional<std::int64_t> length() const;

  /// Number of global batches in an epoch, equal on all ranks; a rank may have no samples in the last one. nullopt if
  /// unknown.
  std::optional<std::int64_t> num_steps() const;

  /// Starts `epoch` at its first batch, or at the position of a state of this epoch that was loaded since the last
  /// call. Waits for samples of another epoch that workers are reading. Ends a visit (`LoaderVisit`).
  /// @throws StateError, without changes, while another loader is in an epoch of the same stream or batch sampler.
  void start_epoch(std::int64_t epoch);
  /// Starts the epoch of a loaded state; after reshard() the current epoch; else epoch 0. Does nothing after
  /// start_epoch(), also at the end of the epoch.
  void ensure_started();
  /// Makes the next batch current; returns false at the end of the epoch, and on further calls. A failed read throws a
  /// DataError that names the records; it nests an original error of another kind. The position does not change, and
  /// the next call retries.
  /// @throws StateError before `start_epoch`.
  bool next();
  /// Returns true if the current batch is the last of this rank in the epoch.
  bool is_last() const { return last_; }
  /// Returns true if is_last(), and no other rank has more batches in this epoch, as far as the source knows.
  bool is_last_on_all_ranks() const { return last_ && missed_steps() == 0; }
  /// Index of the current batch among this process's shares of the global batch, in [0, `num_shares()`): it is share
  /// `shard.rank + share_index()`. 0 without `Shard::num_shares`.
  std::int64_t share_index() const { return step_ != nullptr ? part_ : 0; }
  /// Number of this process's batches in the current global batch: `shard.num_shares`, or fewer if the last one of an
  /// epoch has too few samples. 0 without a current batch.
  std::int64_t num_shares() const { return step_ != nullptr ? step_->num_parts : 0; }
  /// Returns true if the current batch is this process's last share of its global batch, or there is none.
  /// The loader is then between global batches.
  bool is_last_share() const { return step_ == nullptr || part_ + 1 == step_->num_parts; }

  /// Sets this process's share of the global batches, after the number of processes has changed. Ends the epoch in
  /// progress; call `load_state_dict` or `start_epoch` next. Waits for samples that workers are reading.
  /// @throws ConfigError, without changes, for an invalid share.
  void reshard(const Shard& shard);

  /// -1 before the first `start_epoch`.
  std::int64_t epoch() const { return epoch_; }
  /// Number of batches delivered in this epoch. After resuming with another batch size or number of processes:
  /// delivered samples divided by the global batch size, rounded up.
  std::int64_t position() const { return batches_; }
  /// Number of batches delivered over all epochs; in earlier epochs including last batches without samples for this
  /// rank.
  std::int64_t global_step() const { return global_step_; }
  /// Number of samples delivered in this epoch, on all ranks.
  std::int64_t samples() const { return samples_; }

  /// Number of samples in the current batch; 0 without one.
  std::int64_t batch_size() const { return batch_size_; }
  /// Number of samples at the end of the current batch that repeat others, so that all ranks have equal numbers.
  std::int64_t num_padding() const { return current_ != nullptr ? current_->info.num_padding : 0; }
  /// Number of samples on all ranks at this step, without padding; near the end of a stream, as far as this rank knows.
  std::int64_t global_batch_size() const { return current_ != nullptr ? current_->info.global_size : 0; }
  /// Returns the info of the current batch. @throws StateError without one.
  const BatchInfo& info() const { return current().info; }

  /// Returns epoch, delivered samples (including the current batch), seed and settings of the order; `finished` at the
  /// end of the epoch. Equal positions have equal bytes, independent of workers and read-ahead. Between two parts of a
  /// global batch, it is the state before that global batch.
  ///
  /// With `in_order: false` it also contains the samples delivered after the first gap. With several processes these
  /// are only of this rank; `merge_states` combines the states of all ranks. Otherwise all ranks have the same state,
  /// except after a last batch in which not all have samples: save the state of rank 0.
  State state_dict() const;
  /// Resumes after the delivered samples, in order, at the next `start_epoch` of the state's epoch; batch size, number
  /// of workers and number of processes may differ. Restores the seed of the order and of random transforms. Waits for
  /// samples that workers are reading.
  /// @throws StateError, without changes, when the state is of another kind or number of records, or another loader is
  /// in an epoch of the same stream.
  void load_state_dict(const State& state);
  /// Combines the states of all ranks into one, for `in_order: false` with several processes: gather them after the
  /// same number of batches. Returns the first of other states unchanged.
  /// @throws StateError when they do not belong together.
  static State merge_states(std::span<const State> states);

 protected:
  /// @param can_pin  the batch type has `pin_memory`
  /// @throws ConfigError for an invalid option
  LoaderBase(std::unique_ptr<detail::BatchReader> reader, LoaderOptions options, bool can_pin);
  LoaderBase(LoaderBase&&) noexcept;
  LoaderBase& operator=(LoaderBase&&) noexcept;

  /// Starts the loaded epoch unless it was finished, else an epoch that was started but not read, else the next epoch.
  void start_upcoming_epoch();
  /// @throws StateError without a current batch.
  detail::BatchSlot& current() const;

 private:
  friend class LoaderVisit;

  void rewind(std::int64_t epoch);
  bool advance();
  void show(std::int64_t part);
  void count_step();
  std::int64_t missed_steps() const;
  std::int64_t begin_visit(std::int64_t epoch, bool keep);
  void restore_position();
  std::shared_ptr<const detail::Snapshot> load_source(const State& state, std::int64_t samples);

  LoaderOptions options_;
  std::unique_ptr<detail::LoaderEngine> engine_;
  detail::BatchSlot* step_ = nullptr;     // slot of the first part
  detail::BatchSlot* current_ = nullptr;  // slot of the current part
  std::int64_t part_ = 0;
  std::int64_t epoch_ = -1;
  std::int64_t samples_ = 0;
  std::int64_t batches_ = 0;
  std::int64_t global_step_ = 0;
  std::int64_t batch_size_ = 0;
  bool last_ = false;
  bool finished_ = false;                     // all batches of the epoch are delivered
  bool started_ = false;                      // start_epoch was called
  bool loaded_ = false;                       // a state waits for start_epoch
  bool untouched_ = false;                    // next was not called since start_epoch
  bool resumes_ = false;                      // the loaded state is of an epoch that a visit interrupted
  detail::VisitCount visit_;                  // number of the current visit, or of the event that ended it
  std::optional<State> saved_position_ = {};  // set by a visit: the position to return to
  bool saved_in_epoch_ = false;               // the epoch was started when the position was saved
};

}  // namespace danling::inline v0::data
