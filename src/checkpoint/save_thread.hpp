// A thread for saves: one is written, one more waits, each from a copy of the state.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Memory is bounded by two copies of the state; the second is made only when saves overlap. Called by one thread.
class SaveThread {
 public:
  /// Writes a state; `copying_failed` is set if copying from its device failed. Runs on the thread; must not throw.
  using Work = std::function<void(const State& state, std::exception_ptr copying_failed)>;

  /// `drops_waiting`: whether save() replaces a waiting one that is not reliable; otherwise only release() does.
  explicit SaveThread(bool drops_waiting = true);
  /// Waits for all saves, unless an earlier wait() timed out: then it detaches the thread, which may be blocked for
  /// ever.
  ~SaveThread();
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  /// Copies `state` and returns; `work` runs later. Replaces a waiting save that is not `reliable`; blocks while a
  /// reliable one waits.
  /// @throws std::bad_alloc, std::system_error, c10::Error when the copy or the thread cannot be made
  void save(const State& state, bool pinned, bool reliable, Work work);

  /// Waits until no save is running or waiting; returns false after `timeout` seconds.
  bool wait(std::optional<double> timeout);

  /// As wait(); a timeout does not change what the destructor does.
  bool is_idle_within(double seconds);

  /// Keeps a waiting save from beginning until release(). Returns whether one waits that is not reliable.
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
