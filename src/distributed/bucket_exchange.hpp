// How the sums of gradient buckets over ranks are made.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

#include "distributed/sum_tree.hpp"

namespace danling::inline v0::detail {

/// Size, element type and device of a bucket.
struct BucketShape {
  std::int64_t numel = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// Sums buckets over all ranks in their memory. Each step, every rank starts every bucket once, in their order; then it
/// finishes all. For one thread.
class BucketExchange {
 public:
  virtual ~BucketExchange();

  /// The memory of a bucket: flat. Filled by the caller before `start`, not touched until `finish_all` returns.
  virtual at::Tensor memory(std::size_t bucket) const = 0;
  /// Begins to sum. Does not wait for other ranks.
  virtual void start(std::size_t bucket) = 0;
  /// Does what can be done without waiting.
  virtual void poll() {}
  /// Waits for the sums of all buckets, and for the device. @throws DistributedError.
  virtual void finish_all() = 0;
  /// Waits of later steps end after this time.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// The factor of the gradients of later steps, a scalar, for one that keeps some of them from step to step.
  virtual void set_loss_scale(const at::Tensor&) {}
  /// Ends the waits of the other ranks with `reason`, where the group does not.
  virtual void abort(std::string_view reason) { static_cast<void>(reason); }
  /// "shared memory" or the name of the backend, for logs.
  virtual std::string name() const = 0;
};

/// Through memory that the processes of one machine share: each rank adds one part of every bucket for all, in the
/// thread that calls, along the tree of `ranks`. Null on all ranks where there is no such memory; `reason` says why.
/// Called by all ranks.
std::unique_ptr<BucketExchange> make_shared_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                     std::vector<Subtree> ranks, std::chrono::milliseconds timeout,
                                                     std::string* reason);

/// Through the collectives of the group.
std::unique_ptr<BucketExchange> make_group_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                    std::chrono::milliseconds timeout);

/// Through shared memory where `shared` allows it and it can be had, else through the group; `text` says which and why.
/// Called by all ranks.
std::unique_ptr<BucketExchange> make_exchange(const Group& group, const std::vector<BucketShape>& buckets, bool shared,
                                              std::chrono::milliseconds timeout, std::string& text);

/// The same, always along the tree of `ranks`.
std::unique_ptr<BucketExchange> make_tree_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                   std::vector<Subtree> ranks, bool shared,
                                                   std::chrono::milliseconds timeout, std::string& text);

}  // namespace danling::inline v0::detail
