// Summation of gradient buckets over ranks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

#include <distributed/sum_tree.hpp>

namespace danling::inline v0::detail {

/// Size, dtype and device of a bucket.
struct BucketShape {
  std::int64_t numel = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// Sums buckets over all ranks in place. In each step, every rank starts every bucket once, in order, then calls
/// `finish_all`. Use it in one thread.
class BucketExchange {
 public:
  virtual ~BucketExchange();

  /// Returns the flat memory of a bucket. The caller fills it before `start` and does not access it until `finish_all`
  /// returns.
  virtual at::Tensor memory(std::size_t bucket) const = 0;
  /// Starts a sum. Does not wait for other ranks.
  virtual void start(std::size_t bucket) = 0;
  /// Makes progress without waiting.
  virtual void poll() {}
  /// Waits for the sums of all buckets, and for the device. @throws DistributedError.
  virtual void finish_all() = 0;
  /// Sets the timeout of later waits.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// Sets the loss scale of later gradients, a scalar, for exchanges that keep errors between steps.
  virtual void set_loss_scale(const at::Tensor&) {}
  /// Stops the other ranks' waits with `reason`, if aborting the group does not.
  virtual void abort(std::string_view reason) { static_cast<void>(reason); }
  /// Returns "shared memory" or the name of the backend, for logs.
  virtual std::string name() const = 0;
};

/// Sums in memory shared by the processes of one machine. Each rank sums one part of every bucket in the calling
/// thread, along the tree of `ranks`. Returns null on all ranks if shared memory is not available; `reason` explains
/// it. Called by all ranks.
std::unique_ptr<BucketExchange> make_shared_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                     std::vector<Subtree> ranks, std::chrono::milliseconds timeout,
                                                     std::string* reason);

/// Sums by collectives of the group.
std::unique_ptr<BucketExchange> make_group_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                    std::chrono::milliseconds timeout);

/// Uses shared memory if `shared` is set and it is available, else collectives of the group; `text` describes the
/// choice and the reason. Called by all ranks.
std::unique_ptr<BucketExchange> make_exchange(const Group& group, const std::vector<BucketShape>& buckets, bool shared,
                                              std::chrono::milliseconds timeout, std::string& text);

/// As make_exchange, but always along the tree of `ranks`.
std::unique_ptr<BucketExchange> make_tree_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                   std::vector<Subtree> ranks, bool shared,
                                                   std::chrono::milliseconds timeout, std::string& text);

}  // namespace danling::inline v0::detail
