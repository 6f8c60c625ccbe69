// A collective in flight.
#pragma once

#include <memory>
#include <utility>

namespace danling::inline v0 {

/// A collective that a group has started. A value: copies are the same collective. The default has nothing to wait for,
/// as all works of a process alone. Holds its group and its tensor, which nobody may touch until `wait` has returned.
///
/// Destroying an unfinished work is safe: the ranks finish it without this handle, and the tensor's values are
/// undefined. The last handle of a group waits for its unfinished works, at most as long as its timeout.
class Work {
 public:
  Work() = default;

  /// Returns when the tensor has its result; on a device, when later work of the current stream sees it. Further calls
  /// return at once.
  /// @throws DistributedError as collectives of the group do.
  void wait();
  /// Whether `wait` would return, or throw, without waiting for other ranks.
  bool done() const;

 private:
  friend class Group;
  struct Impl;
  explicit Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
