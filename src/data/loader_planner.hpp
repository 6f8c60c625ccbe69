// Plans the samples of each step of an epoch: from samplers, batch samplers and streams.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <danling/data/batch_sampler.hpp>
#include <danling/data/detail/batch_reader.hpp>
#include <danling/data/random.hpp>
#include <danling/data/sampler.hpp>

#include <data/epoch_plan.hpp>

namespace danling::inline v0::data::detail {

/// Data shared by the batches of an epoch.
struct EpochContext {
  std::string split;
  std::int64_t epoch = 0;
  /// Number of records in the dataset; 0 for a stream.
  std::int64_t size = 0;
  /// Index of the next step to plan.
  std::int64_t batch_idx = 0;
  std::int64_t global_step = 0;
  RandomKey record_key;
  RandomKey batch_key;
  Collation collation = Collation::stack;
  EpochPlan plan;
};

/// Plans the steps of an epoch. One thread at a time calls `plan`, in order. After an exception it plans the same step
/// again.
class Planner {
 public:
  explicit Planner(EpochContext context) : context_(std::move(context)) {}
  virtual ~Planner();

  const EpochContext& context() const { return context_; }
  /// Writes this process's next step, one batch per part, to the slot; returns false at the end, and on further calls.
  bool plan(BatchSlot& slot);
  /// Prepares a failed step for a retry. Do not call it while `plan` is running.
  virtual void replan(BatchSlot& slot);
  /// Call it after the batches were read; thread-safe. Returns false if the step is past the end.
  virtual bool complete(BatchSlot& slot) const;
  /// Number of global batches at the end of the epoch without samples for this process; known once all others are
  /// planned.
  virtual std::int64_t num_missed() const { return missed_; }
  /// Returns true if only reading a step shows that it exists.
  virtual bool confirmed_by_read() const { return false; }

 protected:
  /// Plans global batch `step` of the plan or a later one; returns its index, or -1 at the end. Sets `num_parts`.
  virtual std::int64_t plan_step(BatchSlot& slot, std::int64_t step) = 0;
  /// Returns the share of part `part` in a global batch of `global` samples.
  Share share_of_part(std::int64_t part, std::int64_t global) const {
    return share_of(context_.plan.layout(), context_.plan.layout().shard.rank + part, global);
  }
  std::int64_t max_parts() const { return context_.plan.layout().shard.num_shares; }

  std::int64_t missed_ = 0;

 private:
  void describe(BatchSlot& slot, std::int64_t part) const;

  EpochContext context_;
  std::int64_t step_ = 0;
};

/// Plans by a sampler, whose order is a function of the position.
class OrderPlanner final : public Planner {
 public:
  OrderPlanner(EpochContext context, const Sampler& sampler) : Planner(std::move(context)), sampler_(sampler) {}

  std::int64_t num_missed() const override { return context().plan.num_steps() - context().plan.num_batches(); }

 private:
  std::int64_t plan_step(BatchSlot& slot, std::int64_t step) override;
  void fill(BatchInfo& info, const GlobalBatch& global, const Share& share);

  const Sampler& sampler_;
};

/// Plans by a batch sampler, after the batches that a saved state had planned but not delivered.
class GroupPlanner final : public Planner {
 public:
  using Group = std::vector<std::int64_t>;

  GroupPlanner(EpochContext context, BatchSampler& sampler, std::deque<Group> pending, std::int64_t position)
      : Planner(std::move(context)), sampler_(sampler), pending_(std::move(pending)), position_(position) {}

 private:
  std::int64_t plan_step(BatchSlot& slot, std::int64_t step) override;
  /// Copies the records of the next global batch from `pending_` to `group_`; returns false at the end.
  bool next_group();
  void fill(BatchInfo& info, const Share& share) const;
  bool ask_sampler(bool drop_last);
  void remove_group();

  BatchSampler& sampler_;
  std::deque<Group> pending_;
  Group group_;
  std::int64_t position_;
};

class StreamPlanner final : public Planner {
 public:
  /// The stream is at `snapshot`.
  StreamPlanner(EpochContext context, BatchReader& reader, std::shared_ptr<const Snapshot> snapshot,
                std::int64_t snapshot_every)
      : Planner(std::move(context)),
        reader_(reader),
        snapshot_(std::move(snapshot)),
        every_(snapshot_every),
        at_(snapshot_->position) {}

  /// Call it when other code has moved the stream. Do not call it while `plan` is running.
  void invalidate_position() { position_invalid_ = true; }
  void replan(BatchSlot& slot) override;
  bool complete(BatchSlot& slot) const override;
  bool confirmed_by_read() const override { return context().plan.layout().drop_last; }

 private:
  std::int64_t plan_step(BatchSlot& slot, std::int64_t step) override;
  bool read(BatchSlot& slot, std::int64_t planned, std::int64_t begin);
  void go_to(const Snapshot& snapshot);
  bool advance(std::int64_t to);

  BatchReader& reader_;
  std::shared_ptr<const Snapshot> snapshot_;  // at or before the next batch to plan
  std::int64_t every_;
  std::int64_t at_;
  bool position_invalid_ = false;  // the stream is not at at_, but can return to snapshot_
  bool ended_ = false;
};

/// Rethrows the current exception as a DataError with the records of a batch, unless it already names one. Nests the
/// original.
[[noreturn]] void rethrow_for_batch(const BatchInfo& info, bool of_stream);

/// Reads the batches of a planned step; returns false if it is past the end.
bool read_slot(BatchReader& reader, const Planner& planner, BatchSlot& slot);

}  // namespace danling::inline v0::data::detail
