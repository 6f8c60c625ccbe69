// The processes that compute together, and what they exchange.
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
  /// How long a process waits for the others, in joining and in each collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// The local address or host name that the other processes reach this one by; found from the route to the master
  /// when empty. Loopback where the master is, so one machine needs no network.
  std::string host;
};

/// Processes that call the same collectives in the same order. A value: copies share the connections. The default is
/// this process alone, in which every collective returns at once.
///
/// Collectives wait for all ranks, and for a device whose tensors they carry. What the ranks ask for is compared
/// first: when they do not ask for the same, the same error is thrown on all of them, and the group works on. Any other
/// failure (a process that ended, or did not come within the timeout) leaves the group unusable. For one thread at a
/// time.
class Group {
 public:
  Group() = default;

  /// Joins the processes of `identity` over Gloo, which carries host memory; rank 0 listens at its master address
  /// unless the launcher does. Called by all processes, equally often. A world of one connects to nothing.
  /// @throws DistributedError naming address and rank when others do not come, and where LibTorch was built without
  /// Gloo (`over` works there).
  static Group connect(const ProcessIdentity& identity, const GroupOptions& options = {});
  /// The processes of a group that the program has already, with a backend for host memory: `cpu:gloo,cuda:nccl` does.
  /// The caller keeps it usable; its own timeout holds.
  static Group over(const c10::intrusive_ptr<c10d::ProcessGroup>& processes);

  int rank() const;
  int size() const;
  bool alone() const { return impl_ == nullptr; }
  /// What copies of this group share, without keeping its connections; `is` tells whether this is one of them.
  using Identity = std::weak_ptr<const void>;
  Identity identity() const { return impl_; }
  bool is(const Identity& other) const { return !other.owner_before(impl_) && !impl_.owner_before(other); }

  // Collectives: called by all ranks. @throws DistributedError.
  /// Adds up `tensor` of all ranks in place; alike in shape and dtype everywhere, on any device. Bools are true where
  /// any is. Floating sums may be added in any order, the same one on all ranks.
  void all_reduce(at::Tensor& tensor) const;
  /// What each rank gave, in the order of ranks; the sizes may differ.
  std::vector<std::string> all_gather(std::string_view bytes) const;
  /// Tensors of all ranks, in the order of ranks, on the device of this rank's, else on the host; this rank's own is
  /// `rows` itself. They may differ in their first dimension; a rank without any gives an undefined tensor, and gets
  /// empty ones for such ranks, or undefined ones where no rank has any.
  /// @throws DistributedError on all ranks when dtypes or other dimensions differ.
  std::vector<at::Tensor> all_gather(const at::Tensor& rows) const;
  void barrier() const;

 private:
  struct Impl;
  explicit Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
