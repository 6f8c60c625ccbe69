// Process groups and their collectives.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <danling/distributed/process.hpp>
#include <danling/distributed/reduce_op.hpp>
#include <danling/distributed/work.hpp>

namespace c10d {
class ProcessGroup;
}

namespace danling::inline v0 {

struct GroupOptions {
  /// Maximum wait for other ranks when joining and in each collective: above 0. Values above 20 days, such as
  /// `milliseconds::max()`, count as 20 days.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Local address or host name at which other processes reach this process. If empty, the address of the route to the
  /// master; loopback if the master is on loopback, so one machine needs no network.
  std::string host;
  /// Compares the ranks' requests before asynchronous collectives too. Enabled on all ranks if any rank sets it, or
  /// sets DANLING_DISTRIBUTED_DEBUG=1.
  bool debug = false;
};

/// Processes that call the same collectives in the same order. A value type: copies share the connections. A default
/// Group has one rank, this process; all its collectives return at once.
///
/// Collectives wait for all ranks and for the device of their tensors. They compare the ranks' requests first: if these
/// differ, all ranks throw the same error, and the group stays usable. Any other failure (a rank exits, times out or
/// calls `abort`) makes the group, its parent and all groups split from it unusable; the error names the failed rank,
/// counted in the group of `connect`. Use a Group in one thread at a time.
///
/// Tensors may be on any device, and strided. Tensors on a device are copied through host memory, unless
/// `from_process_group` wraps a process group with a backend for that device.
class Group {
 public:
  Group() = default;

  /// Connects the processes of `identity` over Gloo, which transfers host memory. Rank 0 listens at the master address
  /// unless the launcher does. All processes call it equally often. A world of one opens no connection.
  /// @throws DistributedError with address and rank when other ranks do not join, and when LibTorch was built without
  /// Gloo (use `from_process_group` then).
  static Group connect(const ProcessIdentity& identity, const GroupOptions& options = {});
  /// Call it instead of the first `connect` if this process fails before joining: on the other ranks, `connect` then
  /// throws an error with this rank and `reason`, without waiting for its timeout. Waits at most `timeout` for rank 0
  /// (rank 0 waits for the others). Does nothing after a `connect`.
  static void abort_connect(const ProcessIdentity& identity, std::string_view reason,
                            std::chrono::milliseconds timeout) noexcept;
  /// Wraps an existing process group, whose backend must transfer host memory: `cpu:gloo,cuda:nccl` does. The caller
  /// keeps it alive and usable; its timeout applies. Limits: errors do not name the failed rank, `abort` affects only
  /// this process, and `split` is not supported.
  static Group from_process_group(const c10::intrusive_ptr<c10d::ProcessGroup>& processes);
  /// Runs `body` in `size` threads of this process that form a group, for tests and simulations. If a rank throws, the
  /// group is aborted; rethrows the first exception after all threads have ended.
  static void run_threads(int size, const std::function<void(Group& group)>& body, const GroupOptions& options = {});

  int rank() const;
  int size() const;
  /// Returns true for a group of one.
  bool alone() const { return impl_ == nullptr; }
  /// Identifies a group and its copies without keeping the connections open; `is` compares it with a group.
  using Identity = std::weak_ptr<const void>;
  Identity identity() const { return impl_; }
  bool is(const Identity& other) const { return !other.owner_before(impl_) && !impl_.owner_before(other); }

  /// Sets the timeout of later collectives. All ranks call it with the same value; no communication.
  void set_timeout(std::chrono::milliseconds timeout) const;
  std::chrono::milliseconds timeout() const;  ///< in a group of one: the default
  /// Makes this group, its parent and all groups split from it unusable on all ranks: waiting and later collectives
  /// throw `rank 2: <reason>`. May be called on any rank, at any time, from any thread. Rank 0 returns after the other
  /// ranks have read the reason, or after 5 s.
  void abort(std::string_view reason) const;
  /// Returns true if an abort of this rank reaches the other ranks; false for `from_process_group` and in a group of
  /// one.
  bool abort_reaches_others() const;

  // Subgroups. All ranks of this group call these functions; groups may be destroyed in any order.
  /// Groups the ranks of the same `color`, ordered by `key`, then by rank; a negative `color` returns a group of one.
  Group split(int color, int key = 0) const;
  /// Groups the listed ranks in this order; all ranks pass the same list. Unlisted ranks receive a group of one.
  Group subgroup(const std::vector<int>& ranks) const;

  // Collectives: called by all ranks. @throws DistributedError.
  /// Reduces `tensor` over all ranks in place; same shape and dtype on all ranks, any device. The order of
  /// floating-point sums is unspecified, but the same on all ranks: all ranks receive the same bits. Sums are of the
  /// tensor's dtype; complex tensors throw.
  void all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;
  /// Reduces as `all_reduce`, but to `root` only; other ranks keep their tensor.
  void reduce(at::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum) const;
  /// Copies the tensor of `root` into the tensor of each rank; same shape and dtype on all ranks.
  void broadcast(at::Tensor& tensor, int root) const;
  /// Returns the bytes of `root`; `bytes` is ignored on other ranks.
  std::string broadcast(std::string_view bytes, int root) const;
  /// Returns the bytes of all ranks in rank order; sizes may differ.
  std::vector<std::string> all_gather(std::string_view bytes) const;
  /// Returns the `rows` of all ranks in rank order, on the device of this rank's `rows`, or on the host without rows;
  /// the entry of this rank is `rows` itself. First dimensions may differ. A rank without rows passes an undefined
  /// tensor; its entry is empty, or undefined if no rank has rows.
  /// @throws DistributedError on all ranks when dtypes or other dimensions differ.
  std::vector<at::Tensor> all_gather(const at::Tensor& rows) const;
  /// Gathers as `all_gather`, but on `root` only; returns an empty list on other ranks.
  std::vector<std::string> gather(std::string_view bytes, int root) const;
  std::vector<at::Tensor> gather(const at::Tensor& rows, int root) const;
  /// Returns the r-th of the root's `parts` on rank r. One part per rank, of any shape and dtype; other ranks pass no
  /// parts. The result is on the part's device on `root`, on `device` elsewhere.
  at::Tensor scatter(const std::vector<at::Tensor>& parts, int root, at::Device device = at::kCPU) const;
  /// Reduces the `rows` of all ranks and returns this rank's part: `splits[rank]` rows, after those of the lower ranks.
  /// Without `splits` all parts are equal. Reduces in rank order; float16 and bfloat16 in float32.
  at::Tensor reduce_scatter(const at::Tensor& rows, ReduceOp op = ReduceOp::sum, at::IntArrayRef splits = {}) const;
  /// Sends the r-th of `parts` to rank r; returns the received parts in rank order. Any shapes and dtypes, all on one
  /// device.
  std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& parts) const;
  /// Sends `splits[r]` rows to rank r, or equally many without `splits`; returns the received rows as one tensor.
  at::Tensor all_to_all_single(const at::Tensor& rows, at::IntArrayRef splits = {}) const;
  /// Waits for all ranks, at most the group's timeout.
  void barrier() const;
  /// Waits for all ranks, at most `timeout`.
  void barrier(std::chrono::milliseconds timeout) const;

  /// Starts `all_reduce` and returns; several may be in flight. Requests are compared only in debug mode: if ranks
  /// start different collectives, they get an error without the reason, or wrong sums. Does not copy a tensor that is
  /// contiguous, in memory that the backend reads, and of a dtype that it adds.
  Work start_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;
  /// Starts to gather `mine` of each rank into `parts`, one per rank in rank order. All tensors are contiguous, of one
  /// dtype, shape and device, on all ranks. Compares and copies as `start_all_reduce` does.
  Work start_all_gather(const std::vector<at::Tensor>& parts, const at::Tensor& mine) const;
  /// Starts `all_to_all_single`: sends `sent[r]` rows of `input` to rank r, and receives `received[r]` rows from rank r
  /// into `output`. Contiguous, of one dtype and device. Compares and copies as `start_all_reduce` does.
  Work start_all_to_all_single(const at::Tensor& output, const at::Tensor& input, at::IntArrayRef received,
                               at::IntArrayRef sent) const;

  // Point-to-point messages. Messages with one sender and tag arrive in order; tags are 0 or above (from 1,000,000 on
  // PipelineSchedule's). The other rank is not this one.
  static constexpr int any_rank = -1;
  /// Returns when `tensor` may be changed, possibly before the receiver has it.
  void send(const at::Tensor& tensor, int to, int tag = 0) const;
  /// Receives into `tensor`, of the sent shape and dtype; allocates an undefined tensor on the host. Returns the
  /// sender.
  /// @throws DistributedError when shapes differ; the message is discarded and the group stays usable.
  int recv(at::Tensor& tensor, int from = any_rank, int tag = 0) const;
  /// Starts to send raw bytes and returns; several sends may be in flight. The receiver must call `start_recv` with the
  /// same size, or the backend may end the process. `bytes`: contiguous uint8 in host memory, not empty; do not change
  /// it until `wait` returns, which waits for the receiver.
  Work start_send(const at::Tensor& bytes, int to, int tag = 0) const;
  /// Starts to receive into `bytes`: contiguous uint8 in host memory, of the sent size. Read it after `wait`.
  Work start_recv(const at::Tensor& bytes, int from, int tag = 0) const;

 private:
  struct Impl;
  friend class GroupCall;
  friend class Work;
  explicit Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
