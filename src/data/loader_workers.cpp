#include <data/loader_workers.hpp>

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <system_error>
#include <utility>

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/data/throw_if_cancelled.hpp>

#include <core/signal_mask.hpp>

namespace danling::inline v0::data {

namespace {
thread_local const std::atomic<bool>* interrupted = nullptr;  // flag of the loader for which this thread works

struct Interrupted {};
}  // namespace

void throw_if_cancelled() {
  if (interrupted != nullptr && interrupted->load(std::memory_order_relaxed)) [[unlikely]] {
    throw Interrupted();
  }
}

namespace detail {

namespace {

// The workers and the step share the cores. at::set_num_threads would also change future threads; OpenMP's function
// changes only the calling thread.
void use_one_thread() {
  at::get_num_threads();  // LibTorch sets a thread's number on its first call
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) {
    set(1);
  }
}

}  // namespace

WorkerPipeline::WorkerPipeline(BatchReader& reader, WorkerOptions options) : reader_(reader), options_(options) {
  for (std::int64_t i = 0; i <= options_.depth; ++i) {  // plus the current one
    slots_.push_back(make_slots(reader, options_.parts));
  }
}

WorkerPipeline::~WorkerPipeline() {
  stop();
  join_threads();
}

// ---- the loader's thread --------------------------------------------------------------------------------------------

void WorkerPipeline::start(Planner& planner) {
  const Lock lock(mutex_);
  planner_ = &planner;
  exhausted_ = false;
  end_ = std::numeric_limits<std::int64_t>::max();
}

void WorkerPipeline::start_threads() {
  {
    const Lock lock(mutex_);
    if (!threads_.empty() || (exhausted_ && in_use_ == 0)) {
      return;
    }
    quit_ = false;
  }
  std::optional<c10::DeviceIndex> device;
  if (options_.pin) {
    device = at::accelerator::getDeviceIndex();
  }
  const danling::detail::SignalMask no_signals;  // threads inherit the mask
  try {
    for (std::int64_t i = 0; i < options_.num_workers; ++i) {
      threads_.emplace_back([this, i, device] { work(i, device); });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    join_threads();
    danling::detail::fail<StateError>("data.loader", "expected to start ", options_.num_workers, " workers, got ",
                                      started, ": ", error.what());
  }
}

void WorkerPipeline::join_threads() {
  {
    const Lock lock(mutex_);
    quit_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

BatchSlot* WorkerPipeline::ready_slot() const {
  BatchSlot* found = nullptr;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_in_turn = first;
  for (const auto& slot : slots_) {
    const Stage stage = slot->stage;
    if (slot.get() == current_ || stage == Stage::free) {
      continue;
    }
    first = std::min(first, slot->number);
    first_in_turn = slot->in_turn ? std::min(first_in_turn, slot->number) : first_in_turn;
    const bool done = stage == Stage::ready || stage == Stage::failed;
    if (done && (found == nullptr || slot->number < found->number)) {
      found = slot.get();
    }
  }
  const bool in_order = options_.in_order || (found != nullptr && found->number >= first_in_turn);
  return found != nullptr && in_order && found->number != first ? nullptr : found;
}

// An incomplete batch must be delivered at the same step on all ranks, or they would not agree on its size.
void WorkerPipeline::mark_in_turn(BatchSlot& slot) const {
  const Layout& layout = planner_->context().plan.layout();
  slot.in_turn = layout.shard.world_size > 1 && slot.info.global_size < layout.global();
}

// Retries batches whose error the caller has seen; returns true if there are any.
bool WorkerPipeline::retry_failed(Lock& lock) {
  bool found = false;
  for (const auto& slot : slots_) {
    if (slot->stage == Stage::to_retry) {
      found = true;
      if (slot->planned) {
        paused_ = true;
        change_.wait(lock, [&] { return active_ == 0; });
        paused_ = false;
        planner_->replan(*slot);  // with the lock held: workers wait for it only in rare cases
        slot->stage = Stage::waiting;
      } else {
        slot->stage = Stage::free;
        --in_use_;
        blocked_ = false;
      }
    }
  }
  return found;
}

// Planning and reading workers stop at the next sample.
void WorkerPipeline::interrupt(Lock& lock) {
  interrupted_ = true;
  change_.wait(lock, [&] { return active_ == 0; });
  interrupted_ = false;
}

BatchSlot* WorkerPipeline::next() {
  if (current_ != nullptr) {
    current_->drop_parts();  // only this thread uses it, so no lock is needed; the new batch can reuse its memory
  }
  start_threads();
  Lock lock(mutex_);
  if (current_ != nullptr) {
    std::exchange(current_, nullptr)->stage = Stage::free;
  }
  const bool idle = !running_;
  running_ = true;
  if (retry_failed(lock) || idle) {
    wake_.notify_all();
  }
  BatchSlot* slot = nullptr;
  change_.wait(lock, [&] {
    slot = ready_slot();
    return slot != nullptr || (exhausted_ && in_use_ == 0);
  });
  if (slot == nullptr) {
    running_ = false;
    lock.unlock();
    if (!options_.persistent) {
      join_threads();
    }
    return nullptr;
  }
  if (slot->stage == Stage::failed) {
    slot->stage = Stage::to_retry;
    const std::exception_ptr error = std::exchange(slot->error, nullptr);
    lock.unlock();
    std::rethrow_exception(error);
  }
  --in_use_;
  current_ = slot;
  lock.unlock();
  wake_.notify_one();
  return slot;
}

bool WorkerPipeline::ended() {
  Lock lock(mutex_);
  const bool must_be_read = planner_->confirmed_by_read();
  bool more = false;
  change_.wait(lock, [&] {
    more = std::any_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
      const Stage stage = slot->stage;
      return slot.get() != current_ && stage != Stage::free && stage != Stage::planning &&
             (!must_be_read || (stage != Stage::waiting && stage != Stage::reading));
    });
    return more || (exhausted_ && in_use_ == 0);
  });
  return !more;
}

void WorkerPipeline::stop() {
  Lock lock(mutex_);
  running_ = false;
  interrupt(lock);
  for (const auto& slot : slots_) {
    slot->drop_parts();
    slot->error = nullptr;
    slot->stage = Stage::free;
  }
  current_ = nullptr;
  in_use_ = 0;
  planned_ = 0;
  blocked_ = false;
  paused_ = false;
  exhausted_ = true;
  lock.unlock();
  if (!options_.persistent) {
    join_threads();
  }
}

void WorkerPipeline::pause() {
  Lock lock(mutex_);
  paused_ = true;
  interrupt(lock);
}

void WorkerPipeline::resume() {
  {
    const Lock lock(mutex_);
    paused_ = false;
  }
  wake_.notify_all();
}

std::vector<const BatchSlot*> WorkerPipeline::overtaken(std::int64_t number) {
  std::vector<const BatchSlot*> found;
  const Lock lock(mutex_);
  for (const auto& slot : slots_) {
    if (slot.get() != current_ && slot->stage != Stage::free && slot->number < number) {
      found.push_back(slot.get());
    }
  }
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->number < b->number; });
  return found;
}

// ---- the workers ----------------------------------------------------------------------------------------------------

void WorkerPipeline::work(std::int64_t worker, std::optional<c10::DeviceIndex> device) noexcept {
  std::array<char, 16> name{};
  std::snprintf(name.data(), name.size(), "dl-data-%u", static_cast<unsigned>(worker));
  pthread_setname_np(pthread_self(), name.data());
  use_one_thread();
  interrupted = &interrupted_;
  const c10::NoGradGuard no_grad;
  try {
    if (device) {
      at::accelerator::setDeviceIndex(*device);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): pinning will throw the error
  }
  Lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return quit_ || (running_ && !paused_ && (waiting_slot() != nullptr || can_plan())); });
    if (quit_) {
      return;
    }
    ++active_;
    if (BatchSlot* slot = waiting_slot()) {
      read(*slot, lock);
    } else {
      plan(lock);
    }
    --active_;
    change_.notify_one();
  }
}

BatchSlot* WorkerPipeline::waiting_slot() const {
  BatchSlot* found = nullptr;
  for (const auto& slot : slots_) {
    if (slot->stage == Stage::waiting && (found == nullptr || slot->number < found->number)) {
      found = slot.get();
    }
  }
  return found;
}

bool WorkerPipeline::can_plan() const { return !planning_ && !blocked_ && !exhausted_ && in_use_ < options_.depth; }

// Both are called with the lock held, and release it while they plan and read.

void WorkerPipeline::plan(Lock& lock) {
  BatchSlot& slot = **std::find_if(slots_.begin(), slots_.end(), [&](const auto& free) {
    return free->stage == Stage::free && free.get() != current_;
  });
  slot.stage = Stage::planning;
  slot.planned = false;
  slot.in_turn = false;
  slot.number = planned_;
  planning_ = true;
  ++in_use_;
  Planner& planner = *planner_;
  lock.unlock();
  bool more = false;
  std::exception_ptr error;
  try {
    more = planner.plan(slot);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  planning_ = false;
  if (error != nullptr && interrupted_) {
    release(slot);
  } else if (error != nullptr) {
    slot.stage = Stage::failed;
    slot.error = std::move(error);
    blocked_ = true;
  } else if (more && slot.number < end_) {
    slot.planned = true;
    mark_in_turn(slot);
    ++planned_;
    slot.stage = Stage::waiting;
    if (running_ && !paused_) {
      read(slot, lock);
    }
  } else {
    exhausted_ = true;
    release(slot);
  }
}

void WorkerPipeline::read(BatchSlot& slot, Lock& lock) {
  slot.stage = Stage::reading;
  Planner& planner = *planner_;
  lock.unlock();
  wake_.notify_one();  // another worker can plan
  change_.notify_one();
  bool counts = false;
  std::exception_ptr error;
  try {
    counts = read_slot(reader_, planner, slot);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error != nullptr) {
    // Interrupted batches are read again like failed ones, without an error.
    slot.stage = interrupted_ ? Stage::to_retry : Stage::failed;
    slot.error = interrupted_ ? nullptr : std::move(error);
  } else {
    slot.stage = Stage::ready;
    mark_in_turn(slot);
    end_ = counts ? end_ : std::min(end_, slot.number);
  }
  if (end_ <= planned_) {  // data after a stream's end do not count
    exhausted_ = true;
    for (const auto& behind : slots_) {
      const Stage stage = behind->stage;
      if (behind.get() != current_ && behind->number >= end_ &&
          (stage == Stage::ready || stage == Stage::failed || stage == Stage::to_retry || stage == Stage::waiting)) {
        release(*behind);
      }
    }
  }
}

void WorkerPipeline::release(BatchSlot& slot) {
  slot.drop_parts();
  slot.error = nullptr;
  slot.stage = Stage::free;
  --in_use_;
}

}  // namespace detail

}  // namespace danling::inline v0::data
