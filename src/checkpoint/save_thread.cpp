#include <checkpoint/save_thread.hpp>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include <checkpoint/staging.hpp>

namespace danling::inline v0 {
namespace {

constexpr double longest = 1e9;  // seconds that the clock can represent

}  // namespace

struct SaveThread::Shared {
  struct Save {
    State state;
    Work work;
    std::size_t buffer;
    bool reliable;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Save> waiting;
  std::optional<std::size_t> writing;  // the buffer being written
  bool closing = false;
  bool held = false;
  bool left_alone = false;
  std::array<StagingBuffer, 2> buffers;
  std::size_t last_staged = 0;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return (waiting.has_value() && !held) || closing; });
      if (!waiting) {
        return;
      }
      Save save = std::move(*waiting);
      waiting.reset();
      writing = save.buffer;
      changed.notify_all();
      lock.unlock();
      std::exception_ptr copying_failed;
      try {
        buffers[save.buffer].wait();
      } catch (...) {
        copying_failed = std::current_exception();
      }
      save.work(save.state, copying_failed);
      save = Save();  // destroyed before the buffer is free
      lock.lock();
      writing.reset();
      changed.notify_all();
    }
  }
};

SaveThread::SaveThread(bool drops_waiting) : shared_(std::make_shared<Shared>()), drops_waiting_(drops_waiting) {}

SaveThread::~SaveThread() {
  if (!shared_->thread.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
    shared_->changed.notify_all();
  }
  shared_->left_alone ? shared_->thread.detach() : shared_->thread.join();
}

void SaveThread::save(const State& state, bool pinned, bool reliable, Work work) {
  Shared& shared = *shared_;
  if (!shared.thread.joinable()) {
    start();
  }
  std::size_t buffer = 0;
  {
    std::unique_lock lock(shared.mutex);
    if (drops_waiting_ && shared.waiting && !shared.waiting->reliable) {
      shared.waiting.reset();
    }
    shared.changed.wait(lock, [&] { return !shared.waiting; });
    // Uses one buffer while saves do not overlap: the other then takes no memory.
    buffer = shared.writing == shared.last_staged ? 1 - shared.last_staged : shared.last_staged;
  }
  Shared::Save save{shared.buffers[buffer].stage(state, pinned), std::move(work), buffer, reliable};
  const std::lock_guard lock(shared.mutex);
  shared.last_staged = buffer;
  shared.waiting = std::move(save);
  shared.left_alone = false;
  shared.changed.notify_all();
}

// Blocks signals in the new thread, which inherits the mask, so that the program's threads receive them.
void SaveThread::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    shared_->thread = std::thread([shared = shared_] { shared->run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool SaveThread::wait(std::optional<double> timeout) {
  std::unique_lock lock(shared_->mutex);
  const auto idle = [&] { return !shared_->waiting && !shared_->writing; };
  if (!timeout) {
    shared_->changed.wait(lock, idle);
    return true;
  }
  shared_->left_alone =
      !shared_->changed.wait_for(lock, std::chrono::duration<double>(std::min(*timeout, longest)), idle);
  return !shared_->left_alone;
}

bool SaveThread::is_idle_within(double seconds) {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, std::chrono::duration<double>(std::min(seconds, longest)),
                                   [&] { return !shared_->waiting && !shared_->writing; });
}

bool SaveThread::hold() {
  const std::lock_guard lock(shared_->mutex);
  shared_->held = true;
  return shared_->waiting.has_value() && !shared_->waiting->reliable;
}

void SaveThread::release(bool drop) {
  const std::lock_guard lock(shared_->mutex);
  shared_->held = false;
  if (drop) {
    shared_->waiting.reset();
  }
  shared_->changed.notify_all();
}

void SaveThread::order_current_stream() { shared_->buffers[shared_->last_staged].order_current_stream(); }

}  // namespace danling::inline v0
