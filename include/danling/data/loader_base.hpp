// The part of a loader that does not depend on the batch type: epochs, positions, state. Training loops use this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <danling/data/batch_info.hpp>
#include <danling/data/batch_reader.hpp>
#include <danling/data/loader_options.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

namespace detail {
struct LoaderEngine;

/// Whether an accelerator copies faster from page-locked memory.
bool can_use_pinned_memory();

/// Number of visits of a loader. Moving the loader ends the current visit, which refers to it by address.
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

/// Iterates over epochs batch by batch. After `start_epoch`, each `next()` makes one batch current. For one thread. A
/// moved-from loader can only be destroyed or assigned to; the move ends visits and iterators.
///
/// With `Shard::parts` a process gets several batches of each global batch, one `next()` after another. Lengths,
/// positions, steps and states count global batches, as if a process with one share counted, so they do not depend on
/// the number of processes. A global batch counts as delivered with the process's last part of it; all parts are read
/// before the first is delivered.
class LoaderBase {
 public:
  virtual ~LoaderBase();
  LoaderBase(const LoaderBase&) = delete;
  LoaderBase& operator=(const LoaderBase&) = delete;

  const LoaderOptions& options() const { return options_; }
  /// Samples in an epoch, over all ranks; nothing if unknown, as for a stream.
  std::optional<std::int64_t> num_samples() const;
  /// Batches of this rank in a whole epoch (global batches in which it has samples); nothing if unknown.
  std::optional<std::int64_t> length() const;

  /// Global batches in a whole epoch: the same on all ranks, of which one may have no samples in the last. Nothing if
  /// unknown.
  std::optional<std::int64_t> num_steps() const;

  /// Begins `epoch` at its first batch, or at the position of a state of this epoch loaded since the last call. Waits
  /// for the samples of another epoch that workers are reading. Ends a visit (`LoaderVisit`). @throws StateError, and
  /// changes nothing, while another loader is in an epoch of the same stream or batch sampler.
  void start_epoch(std::int64_t epoch);
  /// Starts the epoch of a loaded state, else epoch 0, unless an epoch is started: `next()` then reads on in it.
  void ensure_started();
  /// Makes the next batch current; returns false at the end of the epoch, and from then on. A failed read throws a
  /// DataError that names the records, with the original nested in it; the position stays, and the next call reads that
  /// batch again. @throws StateError before `start_epoch`.
  bool next();
  /// Whether the current batch is the last of this rank in its epoch.
  bool is_last() const { return last_; }
  /// Whether it is, and no other process has more batches in this epoch, as far as the source knows.
  bool is_last_of_all() const { return last_ && missed_steps() == 0; }
  /// Number of the current batch among those of this process in its global batch, in [0, `num_parts()`): share
  /// `shard.rank` + part. 0 without `Shard::parts`.
  std::int64_t part() const { return step_ != nullptr ? part_ : 0; }
  /// Batches of this process in the current global batch: `shard.parts`, or fewer in the last of an epoch that has no
  /// samples for the others. 0 when there is no current batch.
  std::int64_t num_parts() const { return step_ != nullptr ? step_->num_parts : 0; }
  /// Whether the current batch is this process's last one of its global batch, or there is no current batch. Then the
  /// loader stands between global batches.
  bool is_last_part() const { return step_ == nullptr || part_ + 1 == step_->num_parts; }

  /// Takes another share of the global batches: after the number of processes has changed. Ends the epoch in progress;
  /// call `load_state_dict` or `start_epoch` next. Waits for the samples that workers are reading.
  /// @throws ConfigError for an invalid share, and changes nothing.
  void reshard(const Shard& shard);

  /// -1 before the first `start_epoch`.
  std::int64_t epoch() const { return epoch_; }
  /// Batches delivered in this epoch. After resuming with another batch size or number of processes: samples delivered
  /// over samples in a global batch, rounded up.
  std::int64_t position() const { return batches_; }
  /// Batches delivered over all epochs; in those before this one, also last ones without samples for this rank.
  std::int64_t global_step() const { return global_step_; }
  /// Samples delivered in this epoch, on all ranks.
  std::int64_t samples() const { return samples_; }

  /// Samples in the current batch; 0 when there is none.
  std::int64_t batch_size() const { return batch_size_; }
  /// Samples at the end of it that repeat others, so that all ranks have equal numbers.
  std::int64_t num_padding() const { return current_ != nullptr ? current_->info.num_padding : 0; }
  /// Samples in the current batches of all ranks, without padding; of a stream that ends, as far as this rank knows.
  std::int64_t global_batch_size() const { return current_ != nullptr ? current_->info.global_size : 0; }
  /// Info of the current batch. @throws StateError when there is none.
  const BatchInfo& info() const { return current().info; }

  /// Epoch, samples delivered (the current batch included) and the seed and settings of the order; `finished` at the
  /// end of the epoch. The same bytes for the same position, whatever workers have read ahead and however many they
  /// are. Between two parts of a global batch it is the state before that global batch. With `in_order: false` also the
  /// samples delivered behind the first gap; with several processes these are of this rank only, and `merge_states`
  /// combines the states of all ranks. Otherwise all ranks have the same state, except after a last batch that not all
  /// of them have: save that of rank 0.
  State state_dict() const;
  /// Resumes behind the delivered samples, in order, at the next `start_epoch` of the state's epoch; the batch size,
  /// number of workers and number of processes may differ. Restores the seed of the order and of random transforms.
  /// Waits for the samples that workers are reading. @throws StateError, and changes nothing, when the state is of
  /// another kind or number of records, or another loader is in an epoch of the same stream.
  void load_state_dict(const State& state);
  /// Combines the states of all ranks into one, for `in_order: false` with several processes: gather them after the
  /// same number of batches. Returns the first of other states unchanged. @throws StateError when they do not belong
  /// together.
  static State merge_states(std::span<const State> states);

 protected:
  /// @throws ConfigError for an invalid option; `can_pin`: whether the batch type has `pin_memory`.
  LoaderBase(std::unique_ptr<detail::BatchReader> reader, LoaderOptions options, bool can_pin);
  LoaderBase(LoaderBase&&) noexcept;
  LoaderBase& operator=(LoaderBase&&) noexcept;

  /// Begins the loaded, unfinished epoch, or an epoch started but not read from, else the one after the last.
  void start_upcoming_epoch();
  /// @throws StateError when there is none.
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
  bool finished_ = false;                     // all batches of the epoch were delivered
  bool started_ = false;                      // start_epoch was called
  bool loaded_ = false;                       // a state waits for start_epoch
  bool untouched_ = false;                    // next was not called since start_epoch
  bool resumes_ = false;                      // the loaded state is of an epoch that a visit interrupted
  detail::VisitCount visit_;                  // count at the current visit, or at the event that ended it
  std::optional<State> saved_position_ = {};  // set by a visit: the position to return to
  bool saved_in_epoch_ = false;               // the epoch was started
};

}  // namespace danling::inline v0::data
