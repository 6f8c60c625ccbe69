// SideThread: runs one task at a time in parallel with its owner.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace danling::inline v0::formats {

/// Starts a thread with the first task, if there are several cores; else runs tasks in the calling thread. The thread
/// blocks signals.
class SideThread {
 public:
  SideThread() = default;
  /// Waits for the running task.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  /// Starts `work`. Call wait() for the previous task first.
  void start(std::function<void()> work);
  /// Waits for the task, or runs it here if the thread has not started it. Rethrows its exception.
  void wait();

 private:
  bool launch();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // the task that has not started; else empty
  bool busy_ = false;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace danling::inline v0::formats
