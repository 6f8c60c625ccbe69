// A thread for saves: writes one and holds one waiting, each from a copy of the state.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Memory is bounded by two copies of the state; the second exists only when saves overlap. Called by one thread.
class SaveThread {
 public:
  /// Writes a state; `copying_failed` is set if the copy from its device failed. Runs on the thread; must not throw.
  using Work = std::function<void(const State& state, std::exception_ptr copying_failed)>;

  /// `drops_waiting`: save() replaces a waiting save that is not reliable; otherwise only release() drops it.
  explicit SaveThread(bool drops_waiting = true);
  /// Waits for all saves. After an earlier timeout of wait() it detaches the thread instead, which may be blocked
  /// forever.
  ~SaveThread();
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  /// Copies `state` and returns; `work` runs later. Replaces a waiting save that is not `reliable`; blocks while a
  /// reliable one waits.
  /// @throws std::bad_alloc, std::system_error, c10::Error when the copy or the thread cannot be made
  void save(const State& state, bool pinned, bool reliable, Work work);

  /// Waits until no save is running or waiting; returns false after `timeout` seconds.
  bool wait(std::optional<double> timeout);

  /// Like wait(), but a timeout does not affect the destructor.
  bool is_idle_within(double seconds);

  /// Prevents a waiting save from starting until release(). Returns whether a save waits that is not reliable.
  bool hold();
  /// `drop`: discards the waiting save.
  void release(bool drop);

  /// Orders later work on the current stream behind the copies from its device.
  void order_current_stream();

 private:
  void start();

  struct Shared;
  std::shared_ptr<Shared> shared_;
  bool drops_waiting_;
};

}  // namespace danling::inline v0
