// A collective in flight.
#pragma once

#include <memory>
#include <utility>

namespace danling::inline v0 {

/// A collective in flight. Copies refer to the same collective. A default Work is complete, as are all works of a group
/// of one. Holds the group and the tensor; do not access the tensor until `wait` returns.
///
/// Destroying an unfinished Work is safe: the ranks finish the collective, and the tensor's values are undefined.
/// Destroying the last handle of a group waits for its unfinished works, at most for its timeout.
class Work {
 public:
  Work() = default;

  /// Waits until the tensor has its result; on a device, until later work on the current stream sees it. Further calls
  /// return at once.
  /// @throws DistributedError as the group's collectives do.
  void wait();
  /// Returns true if `wait` would return or throw without waiting for other ranks.
  bool done() const;

 private:
  friend class Group;
  struct Impl;
  explicit Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
