// Lets code outside of operators take part in a recorded step: host calls, and refusals to record.
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

/// Lifetime of an object that host calls change; make it a member of the object. A tape is not replayed after the
/// object is destroyed. Copying or assigning the object does not copy its lifetime.
class ObjectLifetime {
 public:
  ObjectLifetime() = default;
  ObjectLifetime(const ObjectLifetime&) noexcept {}
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): keeps its own
  ObjectLifetime& operator=(const ObjectLifetime&) noexcept { return *this; }
  /// Returns a pointer that expires when the object is destroyed.
  std::weak_ptr<void> watch() const {
    token_ = token_ == nullptr ? std::make_shared<char>() : token_;
    return token_;
  }

 private:
  mutable std::shared_ptr<void> token_;
};

/// Receives events of a step that is recorded or compared with its tape, in the thread of the step. Not called in
/// replays.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Records code that reads or changes more than tensors of the step: a meter, a generator, a counter. Each replay
  /// calls `again` at the same place with the tensors that replace `tensors`. The caller makes the first call itself.
  /// The step rethrows exceptions of `again`.
  /// @param name  includes the numbers that `again` captures: steps with different names are of different kinds
  /// @param lifetime  of the object that `again` changes; null if the object outlives the tape. Replays change this
  /// object, never a copy of it
  virtual void host_call(std::string name, Tensors tensors, std::function<void(const Tensors&)> again,
                         const ObjectLifetime* lifetime = nullptr) = 0;
  /// Marks the step as not replayable; `reason` completes "not recorded: ".
  virtual void mark_unrecordable(std::string reason) = 0;
};

namespace detail {
/// A dispatch key below autograd that programs without Python do not use.
inline constexpr auto recording_key = c10::DispatchKey::Fake;

// Inline, so that other modules need not link this one. Default visibility, so that programs with hidden symbols share
// the variables with the library.
[[gnu::visibility("default")]] inline std::atomic<int> observed_threads{0};
[[gnu::visibility("default")]] inline thread_local Observer* observer_of_thread = nullptr;
}  // namespace detail

/// Returns this thread's observer; null outside of a recorded or compared step, at the cost of a branch.
inline Observer* observer() noexcept {
  return detail::observed_threads.load(std::memory_order_relaxed) == 0 ? nullptr : detail::observer_of_thread;
}

/// Marks the current step as not replayable; `reason` as in Observer. Costs a branch outside of a recorded step.
inline void mark_unrecordable(const char* reason) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]] {
    seen->mark_unrecordable(reason);
  }
}

/// While an instance lives, operators and host calls of this thread are not recorded.
class NoRecordGuard {
 public:
  NoRecordGuard()
      : was_included_(c10::impl::tls_is_dispatch_key_included(detail::recording_key)),
        observer_(std::exchange(detail::observer_of_thread, nullptr)) {
    c10::impl::tls_set_dispatch_key_included(detail::recording_key, false);
  }
  ~NoRecordGuard() {
    c10::impl::tls_set_dispatch_key_included(detail::recording_key, was_included_);
    detail::observer_of_thread = observer_;
  }
  NoRecordGuard(const NoRecordGuard&) = delete;
  NoRecordGuard& operator=(const NoRecordGuard&) = delete;

 private:
  bool was_included_;
  Observer* observer_;
};

/// Calls `run(tensors)` now, and again in each replay of the step that is being recorded. Parameters as in Observer;
/// `run` must be copyable.
template <class F>
void host_call(const std::string& name, Tensors tensors, F run, const ObjectLifetime* lifetime = nullptr) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]] {
    {
      const NoRecordGuard suspended;
      run(tensors);
    }
    seen->host_call(name, std::move(tensors), std::move(run), lifetime);
  } else {
    run(tensors);
  }
}

}  // namespace danling::inline v0::tape
