// A thread that does one thing at a time beside its owner.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace danling::inline v0::formats {

/// Starts its thread with the first work, and only where there are several cores; else the work is done in place. The
/// thread takes no signals.
class SideThread {
 public:
  SideThread() = default;
  /// Waits for the work that goes on.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  /// Begins `work`, after the one before has been waited for.
  void start(std::function<void()> work);
  /// Waits for the work, or does it here when the thread has not come to it yet. Throws what it threw.
  void wait();

 private:
  bool launch();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty when there is none that waits
  bool busy_ = false;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace danling::inline v0::formats
