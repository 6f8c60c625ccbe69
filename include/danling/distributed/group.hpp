// Process groups and their collectives.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <danling/distributed/process.hpp>

namespace c10d {
class ProcessGroup;
}

namespace danling::inline v0 {

struct GroupOptions {
  /// How long a process waits for the others when it joins and in each collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Local address or host name at which the other processes reach this one; when empty, taken from the route to the
  /// master. Loopback if the master is on loopback, so one machine needs no network.
  std::string host;
};

/// Processes that call the same collectives in the same order. A value: copies share the connections. The default is
/// this process alone, in which every collective returns at once.
///
/// Collectives wait for all ranks, and for the device of their tensors. The ranks' requests are compared
/// first: if they differ, all ranks throw the same error, and the group stays usable. Any other failure (a process that
/// ended or timed out) makes the group unusable. For one thread at a time.
class Group {
 public:
  Group() = default;

  /// Joins the processes of `identity` over Gloo, which carries host memory; rank 0 listens at its master address
  /// unless the launcher does. Called by all processes, equally often. A world of one opens no connection.
  /// @throws DistributedError naming address and rank when others do not join, and where LibTorch was built without
  /// Gloo (`over` works there).
  static Group connect(const ProcessIdentity& identity, const GroupOptions& options = {});
  /// A group over an existing process group, whose backend must carry host memory: `cpu:gloo,cuda:nccl` does. The
  /// caller keeps it usable; its timeout applies.
  static Group over(const c10::intrusive_ptr<c10d::ProcessGroup>& processes);

  int rank() const;
  int size() const;
  bool alone() const { return impl_ == nullptr; }
  /// Identity of a group and its copies; does not keep the connections open. `is` compares it with a group.
  using Identity = std::weak_ptr<const void>;
  Identity identity() const { return impl_; }
  bool is(const Identity& other) const { return !other.owner_before(impl_) && !impl_.owner_before(other); }

  // Collectives: called by all ranks. @throws DistributedError.
  /// Sums `tensor` over all ranks in place; same shape and dtype on all ranks, on any device. Bools are true where any
  /// is. Floating sums may be added in any order, the same one on all ranks.
  void all_reduce(at::Tensor& tensor) const;
  /// The bytes of each rank, in the order of ranks; the sizes may differ.
  std::vector<std::string> all_gather(std::string_view bytes) const;
  /// The `rows` of all ranks, in the order of ranks, on the device of this rank's `rows`, else on the host; this rank's
  /// entry is `rows` itself. They may differ in their first dimension. A rank without rows passes an undefined tensor;
  /// its entry is empty, or undefined if no rank has rows.
  /// @throws DistributedError on all ranks when dtypes or other dimensions differ.
  std::vector<at::Tensor> all_gather(const at::Tensor& rows) const;
  void barrier() const;

 private:
  struct Impl;
  explicit Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
