// How code beside the operators takes part in a recorded step: host calls, and reasons not to record.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace danling::inline v0::tape {

using Tensors = std::vector<at::Tensor>;

/// A member of objects that host calls change: a tape whose object is gone is not replayed. It stays with its object,
/// also where that is copied or assigned to.
class Life {
 public:
  Life() = default;
  Life(const Life&) noexcept {}
  Life& operator=(const Life&) noexcept { return *this; }  // NOLINT(bugprone-unhandled-self-assignment): keeps its own
  std::weak_ptr<void> watch() const {
    token_ = token_ == nullptr ? std::make_shared<char>() : token_;
    return token_;
  }

 private:
  mutable std::shared_ptr<void> token_;
};

/// Sees a step while it is recorded, or compared with its tape, in the thread that runs the step. Replays have none.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Code that reads or changes more than tensors of the step: a meter, a generator, a counter. `again` runs in each
  /// replay, at the same place, with the tensors that then stand for `tensors`. The first run is the caller's. What
  /// `again` throws, the step throws.
  /// @param name  with the numbers that `again` holds: steps whose names differ are not of one kind
  /// @param life  of the object that it changes; null: it outlives the tape. A copy of the object has another life, and
  /// is not the one that replays change
  virtual void host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)> again,
                         const Life* life = nullptr) = 0;
  /// The step cannot be replayed; `reason` completes "not recorded: ".
  virtual void refuse(std::string reason) = 0;
};

namespace detail {
/// Below autograd, and not used by a program without Python.
inline constexpr auto recording_key = c10::DispatchKey::Fake;

// Defined here: who takes part in a recording needs no library of this module. Visible, also in a program whose symbols
// are hidden: it shares them with the library.
[[gnu::visibility("default")]] inline std::atomic<int> observed_threads{0};
[[gnu::visibility("default")]] inline thread_local Observer* observer_of_thread = nullptr;
}  // namespace detail

/// That of this thread; null outside of such a step, at the cost of a branch.
inline Observer* observer() noexcept {
  return detail::observed_threads.load(std::memory_order_relaxed) == 0 ? nullptr : detail::observer_of_thread;
}

/// A step that does this cannot be replayed; `reason` as in Observer. Costs a branch outside of such a step.
inline void refuse(const char* reason) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]] {
    seen->refuse(reason);
  }
}

/// While it lives, this thread's operators and host calls are not recorded.
class Suspended {
 public:
  Suspended()
      : was_included_(c10::impl::tls_is_dispatch_key_included(detail::recording_key)),
        observer_(std::exchange(detail::observer_of_thread, nullptr)) {
    c10::impl::tls_set_dispatch_key_included(detail::recording_key, false);
  }
  ~Suspended() {
    c10::impl::tls_set_dispatch_key_included(detail::recording_key, was_included_);
    detail::observer_of_thread = observer_;
  }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  bool was_included_;
  Observer* observer_;
};

/// Calls `run(tensors)` now, and in each replay of the step that is being recorded. Parameters as in Observer; `run`
/// can be copied.
template <class F>
void host_call(const std::string& name, Tensors tensors, F run, const Life* life = nullptr) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]] {
    {
      const Suspended suspended;
      run(tensors);
    }
    seen->host_call(name, std::move(tensors), std::move(run), life);
  } else {
    run(tensors);
  }
}

}  // namespace danling::inline v0::tape
