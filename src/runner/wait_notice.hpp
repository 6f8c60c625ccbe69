// A log line while this process waits for others at its start.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

/// Logs `text` once, unless it is destroyed within `patience`, for a user who has not started a process.
class WaitNotice {
 public:
  WaitNotice(Logger& logger, std::string text, std::chrono::milliseconds patience = std::chrono::seconds(5))
      : thread_([this, &logger, text = std::move(text), patience] {
          std::unique_lock lock(mutex_);
          if (!over_.wait_for(lock, patience, [this] { return is_over_; })) {
            logger.info(text);
          }
        }) {}
  ~WaitNotice() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace danling::inline v0::detail
