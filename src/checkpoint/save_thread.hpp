// Saves on a thread of their own: one is written, one more waits, both from memory of their own.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Memory is bounded by two copies of the state; the second is taken only when saves overlap. Called by one thread.
class SaveThread {
 public:
  /// Writes a state; with `copying_failed`, the state did not arrive from its device. Runs on the thread; must not
  /// throw.
  using Work = std::function<void(const State& state, std::exception_ptr copying_failed)>;

  SaveThread();
  /// Waits for all saves, unless an earlier wait() ran out of time: then the thread is left to itself, since what it
  /// hangs on may never end.
  ~SaveThread();
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  /// Copies `state` and returns; `work` follows. A waiting save that is not `reliable` is dropped for the new one,
  /// which is newer; when the one that waits is reliable the call waits until it is its turn.
  /// @throws std::bad_alloc, std::system_error, c10::Error when the copy or the thread cannot be made
  void save(const State& state, bool pinned, bool reliable, Work work);

  /// Waits until nothing is being written or waits; false when `timeout` seconds are over before.
  bool wait(std::optional<double> timeout);

  /// Orders what the current stream does next behind the copies from its device.
  void order_current_stream();

 private:
  void start();

  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace danling::inline v0
