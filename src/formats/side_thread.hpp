// A thread that runs one task at a time beside its owner.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace danling::inline v0::formats {

/// Starts its thread with the first task, and only on several cores; else runs tasks in place. Signals are blocked on
/// the thread.
class SideThread {
 public:
  SideThread() = default;
  /// Waits for the running task.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  /// Begins `work`, after the previous task was waited for.
  void start(std::function<void()> work);
  /// Waits for the task, or runs it here if the thread has not started it. Rethrows its exception.
  void wait();

 private:
  bool launch();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty without a waiting task
  bool busy_ = false;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace danling::inline v0::formats
