// List of the operations in which threads of this process wait for other ranks, for a watchdog.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace danling::inline v0::detail {

struct PendingCall {
  pid_t thread = 0;
  std::string operation;
  std::int64_t number = 0;  ///< among the collectives of its group; 0 if it has none
  std::int64_t bytes = 0;   ///< size of this rank's data; 0 while unknown
  std::chrono::steady_clock::time_point begin;
};

/// Lists the calling thread's operation while it lives. Costs 0.2 us.
class PendingScope {
 public:
  /// @param operation  must outlive the scope
  explicit PendingScope(const char* operation, std::int64_t number = 0, std::int64_t bytes = 0);
  ~PendingScope();
  PendingScope(const PendingScope&) = delete;
  PendingScope& operator=(const PendingScope&) = delete;

  /// Only the first call has an effect.
  void set_bytes(std::int64_t bytes) {
    if (bytes_.load(std::memory_order_relaxed) == 0) {
      bytes_.store(bytes, std::memory_order_relaxed);
    }
  }

 private:
  friend std::vector<PendingCall> pending_calls();

  PendingScope* before_;
  PendingScope* after_ = nullptr;
  const char* operation_;
  std::int64_t number_;
  std::atomic<std::int64_t> bytes_;
  std::chrono::steady_clock::time_point begin_;
  pid_t thread_;
};

/// Returns the pending operations in the order in which they started. Thread-safe.
std::vector<PendingCall> pending_calls();

/// `all_reduce number 12, 4096 bytes, for 31.2 s`.
std::string pending_text(const PendingCall& call);

}  // namespace danling::inline v0::detail
