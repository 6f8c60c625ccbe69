#include <danling/data/loader_base.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/DeviceAccelerator.h>

#include <danling/core/error.hpp>
#include <danling/data/permutation.hpp>

#include <data/loader_engine.hpp>
#include <data/loader_workers.hpp>

namespace danling::inline v0::data {

namespace detail {

bool can_use_pinned_memory() { return at::accelerator::deviceCount() > 0; }

namespace {

std::shared_ptr<Sampler> order_of(const LoaderOptions& options, std::int64_t size) {
  if (options.sampler != nullptr) {
    return options.sampler;
  }
  if (options.shuffle) {
    return std::make_shared<RandomSampler>(size, options.seed, options.split);
  }
  return std::make_shared<SequentialSampler>(size);
}

std::unique_ptr<Pipeline> pipeline_of(const LoaderOptions& options, BatchReader& reader) {
  if (options.num_workers == 0) {
    return std::make_unique<DirectPipeline>(reader, options.shard.num_shares);
  }
  // The fewest steps that contain the batches to read ahead, but at least one per worker.
  const std::int64_t batches = options.num_workers * options.prefetch_factor.value_or(2);
  return std::make_unique<WorkerPipeline>(
      reader, WorkerOptions{.num_workers = options.num_workers,
                            .parts = options.shard.num_shares,
                            .depth = std::max(options.num_workers, rounded_up(batches, options.shard.num_shares)),
                            .persistent = options.persistent_workers,
                            .in_order = options.in_order,
                            .pin = options.pin_memory && can_use_pinned_memory()});
}

std::unique_ptr<Planner> planner_of(LoaderEngine& engine, const LoaderOptions& options, EpochContext context,
                                    std::int64_t position) {
  if (engine.sampler != nullptr) {
    return std::make_unique<OrderPlanner>(std::move(context), *engine.sampler);
  }
  if (engine.batch_sampler != nullptr) {
    return std::make_unique<GroupPlanner>(std::move(context), *engine.batch_sampler, engine.place->pending, position);
  }
  return std::make_unique<StreamPlanner>(std::move(context), *engine.reader, engine.place,
                                         options.snapshot_every_n_steps.value_or(1));
}

}  // namespace

// Only the loader's thread sees all batches.
void LoaderEngine::check_end(BatchSlot* slot) {
  if (slot != nullptr && is_stream()) {
    if (slot->info.global_size < slot->wanted) {
      end = std::min(end, slot->info.position - slot->before + slot->info.global_size);
    }
    const BatchSlot& last = slot->part(slot->num_parts - 1);
    furthest = std::max(furthest, last.info.position + last.size);
  }
  if (furthest > end) [[unlikely]] {
    fail<DataError>("data.loader", "expected the end of the stream after sample ", end,
                    ", where it returned fewer than requested, got samples up to ", furthest, of_split(split));
  }
}

bool LoaderEngine::claim_source() {
  return batch_sampler != nullptr ? claim.take(batch_sampler.get(), "batch sampler", of_split(split))
                                  : claim.take(reader->stream(), "stream", of_split(split));
}

std::shared_ptr<const Snapshot> LoaderEngine::snapshot_source() const {
  if (sampler != nullptr) {
    return nullptr;
  }
  State state = batch_sampler != nullptr ? clone(batch_sampler->state_dict()) : reader->state_dict();
  return std::make_shared<const Snapshot>(Snapshot{0, std::move(state)});
}

}  // namespace detail

LoaderBase::LoaderBase(std::unique_ptr<detail::BatchReader> reader, LoaderOptions options, bool can_pin)
    : options_(std::move(options)), engine_(std::make_unique<detail::LoaderEngine>()) {
  const std::optional<std::int64_t> size = reader->size();
  detail::check_options(options_, !size, can_pin);
  check<DataError>(!size || *size > 0, "data.loader", "expected a dataset with at least one record, got ",
                   size.value_or(0), detail::of_split(options_.split));
  engine_->reader = std::move(reader);
  if (size) {
    engine_->batch_sampler = options_.batch_sampler;
    engine_->sampler = options_.batch_sampler == nullptr ? detail::order_of(options_, *size) : nullptr;
  }
  engine_->layout = {options_.batch_size, options_.shard, options_.drop_last};
  engine_->seed = options_.seed;
  engine_->split = options_.split;
  engine_->pipeline = detail::pipeline_of(options_, *engine_->reader);
}

LoaderBase::~LoaderBase() = default;

// Workers hold a pointer to the engine, which does not move.
LoaderBase::LoaderBase(LoaderBase&&) noexcept = default;
LoaderBase& LoaderBase::operator=(LoaderBase&&) noexcept = default;

std::optional<std::int64_t> LoaderBase::num_samples() const {
  const detail::LoaderEngine& engine = detail::engine_of(engine_);
  return engine.batch_sampler != nullptr ? engine.batch_sampler->size() : engine.order_size();
}

std::optional<std::int64_t> LoaderBase::length() const {
  const detail::LoaderEngine& engine = detail::engine_of(engine_);
  if (engine.sampler != nullptr) {
    return detail::EpochPlan(engine.order_size(), {}, engine.layout).num_batches();
  }
  // If a batch has fewer samples, this rank may have none of them.
  const Shard& shard = engine.layout.shard;
  return engine.batch_sampler != nullptr && (shard.world_size == 1 || shard.padding)
             ? engine.batch_sampler->length(engine.layout.shape())
             : std::nullopt;
}

std::optional<std::int64_t> LoaderBase::num_steps() const {
  const detail::LoaderEngine& engine = detail::engine_of(engine_);
  if (engine.sampler != nullptr) {
    return detail::EpochPlan(engine.order_size(), {}, engine.layout).num_steps();
  }
  return engine.batch_sampler != nullptr ? engine.batch_sampler->length(engine.layout.shape()) : std::nullopt;
}

void LoaderBase::rewind(std::int64_t epoch) {
  engine_->pipeline->stop();
  engine_->planner = nullptr;
  engine_->steps = {};
  engine_->newest = -1;
  engine_->end = std::numeric_limits<std::int64_t>::max();
  engine_->furthest = 0;
  step_ = nullptr;
  current_ = nullptr;
  batch_size_ = 0;
  last_ = false;
  epoch_ = epoch;
}

void LoaderBase::reshard(const Shard& shard) {
  detail::LoaderEngine& engine = detail::engine_of(engine_);
  LoaderOptions options = options_;
  options.shard = shard;
  detail::check_options(options, engine.is_stream(), /*can_pin=*/true);
  rewind(epoch_);
  started_ = loaded_ = false;
  options_.shard = engine.layout.shard = shard;
  engine.pipeline = detail::pipeline_of(options_, *engine.reader);
}

void LoaderBase::start_epoch(std::int64_t epoch) {
  check<StateError>(epoch >= 0, "data.loader", "expected an epoch of at least 0, got ", epoch);
  detail::LoaderEngine& engine = detail::engine_of(engine_);
  engine.claim_source();
  ++visit_;
  if (saved_position_) {
    restore_position();
    engine.claim_source();  // again: restoring a position outside of an epoch releases the claim
  }
  const bool continues = loaded_ && epoch == epoch_;
  global_step_ += missed_steps();
  rewind(epoch);
  loaded_ = false;
  started_ = false;
  resumes_ = false;
  if (!continues) {
    finished_ = false;
    samples_ = 0;
    batches_ = 0;
    engine.done = {};
    engine.place = nullptr;
  }
  if (engine.sampler != nullptr) {
    engine.sampler->set_epoch(epoch);
  } else if (!continues) {
    if (engine.batch_sampler != nullptr) {
      engine.batch_sampler->set_epoch(epoch);
    } else {
      engine.reader->reset(epoch);
    }
    engine.place = engine.snapshot_source();
  }
  detail::EpochContext context;
  context.split = options_.split;
  context.epoch = epoch;
  context.collation = options_.collation;
  context.size = engine.reader->size().value_or(0);
  context.batch_idx = batches_;
  context.global_step = global_step_;
  context.record_key = RandomKey::of(order_key(engine.seed, epoch, engine.split + "/records"));
  context.batch_key = RandomKey::of(order_key(engine.seed, epoch, engine.split + "/batches"));
  context.plan = detail::EpochPlan(engine.order_size(), engine.done, engine.layout);
  engine.batches_left = engine.sampler != nullptr ? std::optional(context.plan.num_batches()) : std::nullopt;
  engine.planner = detail::planner_of(engine, options_, std::move(context), samples_);
  engine.pipeline->start(*engine.planner);
  started_ = true;
  untouched_ = true;
}

void LoaderBase::start_upcoming_epoch() {
  detail::engine_of(engine_);
  if (saved_position_) {
    ++visit_;
    restore_position();
  }
  if (resumes_) {
    start_epoch(batches_ == 0 ? epoch_ : epoch_ + 1);
    return;
  }
  if (started_ && untouched_ && !loaded_) {
    return;
  }
  start_epoch(loaded_ && epoch_ >= 0 && !finished_ ? epoch_ : epoch_ + 1);
}

void LoaderBase::ensure_started() {
  detail::engine_of(engine_);
  if (saved_position_) {
    ++visit_;
    restore_position();
  }
  if (!resumes_ && (!started_ || loaded_)) {
    start_epoch(std::max<std::int64_t>(epoch_, 0));
  }
}

bool LoaderBase::next() {
  detail::engine_of(engine_);
  if (saved_position_) {
    ++visit_;
    restore_position();
  }
  if (resumes_) {
    start_epoch(epoch_);
  }
  return advance();
}

bool LoaderBase::advance() {
  check<StateError>(started_ && !loaded_, "data.loader", "expected start_epoch() before next()");
  untouched_ = false;
  if (!is_last_share()) {
    current_->drop();
    show(part_ + 1);
    return true;
  }
  step_ = nullptr;
  current_ = nullptr;
  batch_size_ = 0;
  last_ = false;
  detail::LoaderEngine& engine = *engine_;
  detail::BatchSlot* const slot = engine.pipeline->next();
  engine.check_end(slot);
  if (slot == nullptr) {
    finished_ = true;
    engine.claim.release();
    return false;
  }
  step_ = slot;
  show(0);
  return true;
}

void LoaderBase::show(std::int64_t part) {
  part_ = part;
  current_ = &step_->part(part);
  batch_size_ = current_->size;
  if (is_last_share()) {
    count_step();
  }
}

// Ranks without samples in the last step count it at the start of the next epoch, so that all ranks count equally.
std::int64_t LoaderBase::missed_steps() const {
  return finished_ && engine_->planner != nullptr ? engine_->planner->num_missed() : 0;
}

// A step counts as delivered with its last part.
void LoaderBase::count_step() {
  detail::LoaderEngine& engine = *engine_;
  samples_ += step_->info.global_size;
  ++batches_;
  ++global_step_;
  engine.steps.add({step_->step, step_->step + 1});
  if (step_->number > engine.newest) {
    engine.newest = step_->number;
    engine.place = step_->next_snapshot;
  }
  last_ = engine.batches_left ? --*engine.batches_left == 0 : engine.pipeline->ended();
  finished_ = last_;
  if (finished_) {
    engine.claim.release();
  }
}

detail::BatchSlot& LoaderBase::current() const {
  detail::engine_of(engine_);
  if (current_ == nullptr) [[unlikely]] {
    fail<StateError>("data.loader", "expected a current batch, got none: call next() first");
  }
  return *current_;
}

}  // namespace danling::inline v0::data
