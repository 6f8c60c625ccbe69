// Failures of ranks: each is published in the store and ends the waits of the others.
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

/// The store's clients count milliseconds in 32 bits.
constexpr auto longest_timeout = std::chrono::hours(24 * 20);
// Bounds of the time after a failure. A failing collective ends at most 9 s after its timeout: a second more than the
// first two.
constexpr auto answer_time = std::chrono::seconds(3);   ///< for the reports of others
constexpr auto reading_time = std::chrono::seconds(5);  ///< for others to read the store of an ending rank 0
constexpr auto teardown_time = std::chrono::seconds(2);

/// One per process and first group, shared by all groups made from it. A thread waits in the store for the news that a
/// rank has failed; then each rank writes where it is, and reads the reports of the others. The store is used by that
/// thread alone, which it may block for ever if its server hangs: callers wait for the thread with a limit.
class Watch {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    /// Whether the store ends with this process.
    bool serves = false;
    /// Whose end the loss of the store is: `rank 0`.
    std::string server;
  };

  explicit Watch(const c10::intrusive_ptr<c10d::Store>& store, Options options);
  /// Lets others know that this rank leaves.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// The place of this rank in one more group, which `enter` and `remove` name.
  using Entry = std::list<Place>::iterator;
  Entry add(std::string group, std::vector<std::int64_t> ranks);
  void remove(Entry entry);
  void enter(Entry entry, std::int64_t number, const char* operation);

  /// Whether a rank has reported a failure, or the store was lost a while ago.
  bool failed() const;
  /// Whether the reason is that of an `abort`.
  bool aborted() const;
  /// Publishes the failure of this rank, if no other has published one, and returns why collectives fail from now on.
  std::string report(RankReport report);
  /// The same after `failed`.
  std::string reason();
  /// Publishes the reason and waits until it can be read without this process.
  void abort(std::string_view reason);

  /// Runs `cancel` when a rank reports a failure, at once if one has. An empty one removes it.
  void on_failure(std::function<void()> cancel);
  /// A connection of the caller's own to the store. Using it blocks while the store's server is stopped.
  c10::intrusive_ptr<c10d::Store> new_client() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

/// Runs `action` in a thread of its own; whether it ended within `limit`. If not, it goes on in the background.
bool ends_within(std::chrono::milliseconds limit, std::function<void()> action);

}  // namespace danling::inline v0::detail
