// Publishes failures of ranks in the store and ends the waits of other ranks.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include <distributed/rank_report.hpp>

namespace c10d {
class Store;
}

namespace danling::inline v0::detail {

/// poll() counts milliseconds in 32 bits.
constexpr auto longest_timeout = std::chrono::hours(24 * 20);
// Limits of the time after a failure. A failing collective ends at most 9 s after its timeout: 1 s more than the first
// two.
constexpr auto answer_time = std::chrono::seconds(3);   ///< for reports of other ranks
constexpr auto reading_time = std::chrono::seconds(5);  ///< for other ranks to read the store of an ending rank 0
constexpr auto teardown_time = std::chrono::seconds(2);

/// One per process and first group, shared by all groups split from it. A thread waits in the store until a rank
/// reports a failure; then each rank writes its position and reads the other reports. Only that thread reads from the
/// store, which may block forever if its server hangs: callers wait for the thread with a limit.
class Watch {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    /// True if the store ends with this process.
    bool serves = false;
    /// Name of the process that serves the store, for messages: `rank 0`.
    std::string server;
  };

  explicit Watch(const c10::intrusive_ptr<c10d::Store>& store, Options options);
  /// Reports that this rank leaves.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// The position of this rank in one more group, for `enter` and `remove`.
  using Entry = std::list<Place>::iterator;
  Entry add(std::string group, std::vector<std::int64_t> ranks);
  void remove(Entry entry);
  void enter(Entry entry, std::int64_t number, const char* operation);

  /// Returns true if a rank has reported a failure, or the store was lost some time ago.
  bool failed() const;
  /// Returns true if the reason is an `abort`.
  bool aborted() const;
  /// Publishes the failure of this rank, if no other rank has, and returns why collectives fail from now on.
  std::string report(RankReport report);
  /// Returns the reason, once `failed` is true.
  std::string reason();
  /// Publishes the reason and waits until it can be read without this process.
  void abort(std::string_view reason);

  /// Sets a function to run when a rank reports a failure (at once if one has). An empty function removes it.
  void on_failure(std::function<void()> cancel);
  /// Returns a separate connection to the store. Using it blocks while the store's server is stopped.
  c10::intrusive_ptr<c10d::Store> new_client() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

/// Runs `action` in a new thread and returns true if it ended within `limit`. If not, it continues in the background.
bool ends_within(std::chrono::milliseconds limit, std::function<void()> action);

}  // namespace danling::inline v0::detail
