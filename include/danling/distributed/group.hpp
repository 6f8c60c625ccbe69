// The processes that compute together, and what they exchange.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/process.hpp>

namespace danling::inline v0 {

struct GroupOptions {
  /// How long a process waits for the others, in joining and in each collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// The local address or host name that the other processes reach this one by; found from the route when empty.
  std::string host;
};

/// Processes that call the same collectives in the same order. A value: copies share the connections. The default is
/// this process alone, in which every collective returns at once.
///
/// Collectives wait for all ranks. One that fails leaves the group unusable.
class Group {
 public:
  Group() = default;

  /// Joins the processes of `identity` over Gloo, which carries host memory; rank 0 listens at its master address.
  /// A world of one connects to nothing. @throws DistributedError naming address and rank when others do not come.
  static Group connect(const ProcessIdentity& identity, const GroupOptions& options = {});

  int rank() const;
  int size() const;
  bool alone() const { return impl_ == nullptr; }

  // Collectives: called by all ranks. @throws DistributedError.
  /// Adds up `tensor` of all ranks in place; alike in shape and dtype everywhere, on any device. Floating sums may be
  /// added in any order, the same one on all ranks.
  void all_reduce(at::Tensor& tensor) const;
  /// What each rank gave, in the order of ranks; the sizes may differ.
  std::vector<std::string> all_gather(std::string_view bytes) const;
  /// Tensors of all ranks, in the order of ranks, on the device of this rank's, else on the host. They may differ in
  /// their first dimension; a rank without any gives an undefined tensor, and gets empty ones for such ranks.
  /// @throws DistributedError on all ranks when dtypes or other dimensions differ.
  std::vector<at::Tensor> all_gather(const at::Tensor& rows) const;
  void barrier() const;

 private:
  struct Impl;
  explicit Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
