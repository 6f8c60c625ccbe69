#include <formats/side_thread.hpp>

#include <system_error>
#include <utility>

#include <core/signal_mask.hpp>

namespace danling::inline v0::formats {

SideThread::~SideThread() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
}

bool SideThread::launch() {
  if (thread_.joinable()) {
    return true;
  }
  if (std::thread::hardware_concurrency() < 2) {
    return false;
  }
  try {
    const detail::SignalMask quiet;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // the process has no thread left: start() runs the task
    return false;
  }
  return true;
}

void SideThread::start(std::function<void()> work) {
  if (!launch()) {
    work();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void SideThread::wait() {
  std::unique_lock lock(mutex_);
  if (work_) {  // the thread has not started it: run it here
    const auto work = std::exchange(work_, nullptr);
    lock.unlock();
    work();
    return;
  }
  changed_.wait(lock, [this] { return !busy_; });
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void SideThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || work_; });
    if (!work_) {
      return;
    }
    const auto work = std::exchange(work_, nullptr);
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    error_ = error;
    changed_.notify_all();
  }
}

}  // namespace danling::inline v0::formats
