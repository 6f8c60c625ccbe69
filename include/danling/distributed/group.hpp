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
  /// How long a process waits for the others when it joins and in each collective: above 0; 20 days at most, also for
  /// `milliseconds::max()`.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Local address or host name at which the other processes reach this one; when empty, taken from the route to the
  /// master. Loopback if the master is on loopback, so one machine needs no network.
  std::string host;
  /// Compares the ranks' requests before asynchronous collectives too. On for all ranks if on for one, or if
  /// DANLING_DISTRIBUTED_DEBUG=1 is set for one.
  bool debug = false;
};

/// Processes that call the same collectives in the same order. A value: copies share the connections. The default is
/// this process alone, in which every collective returns at once.
///
/// Collectives wait for all ranks, and for the device of their tensors. The ranks' requests are compared
/// first: if they differ, all ranks throw the same error, and the group stays usable. Any other failure (a process that
/// ended, timed out or called `abort`) makes the group unusable, and with it all groups made from it, and the group it
/// was made from; errors name the rank at fault, by its rank in the group of `connect`. For one thread at a time.
///
/// Tensors may be on any device, and strided. Those on a device travel through host memory, unless the group is `over`
/// processes with a backend for the device.
class Group {
 public:
  Group() = default;

  /// Joins the processes of `identity` over Gloo, which carries host memory; rank 0 listens at its master address
  /// unless the launcher does. Called by all processes, equally often. A world of one opens no connection.
  /// @throws DistributedError naming address and rank when others do not join, and where LibTorch was built without
  /// Gloo (`over` works there).
  static Group connect(const ProcessIdentity& identity, const GroupOptions& options = {});
  /// In place of the first `connect`, for a process that has failed before it: `connect` of the others throws `reason`
  /// and this rank. Waits for rank 0, and as rank 0 for the others, at most `timeout`; does nothing after a `connect`.
  static void decline(const ProcessIdentity& identity, std::string_view reason,
                      std::chrono::milliseconds timeout) noexcept;
  /// A group over an existing process group, whose backend must carry host memory: `cpu:gloo,cuda:nccl` does. The
  /// caller keeps it usable; its timeout applies. Errors do not name the rank at fault; `abort` is seen by this process
  /// alone; it cannot be split.
  static Group over(const c10::intrusive_ptr<c10d::ProcessGroup>& processes);
  /// Runs `body` in `size` threads of this process that form a group, for tests and simulations. A rank that throws
  /// aborts the group; the first exception is thrown on, once all threads have ended.
  static void run_threads(int size, const std::function<void(Group& group)>& body, const GroupOptions& options = {});

  int rank() const;
  int size() const;
  bool alone() const { return impl_ == nullptr; }
  /// Identity of a group and its copies; does not keep the connections open. `is` compares it with a group.
  using Identity = std::weak_ptr<const void>;
  Identity identity() const { return impl_; }
  bool is(const Identity& other) const { return !other.owner_before(impl_) && !impl_.owner_before(other); }

  /// Timeout of later collectives. Called by all ranks with the same value; does not communicate.
  void set_timeout(std::chrono::milliseconds timeout) const;
  std::chrono::milliseconds timeout() const;  ///< of this process alone, where it has no group: the default
  /// Ends the group, all groups made from it, and the group it was made from, on all ranks: their waiting and later
  /// collectives throw `rank 2: <reason>`. Called by any rank, at any time, from any thread. Rank 0 returns when the
  /// others have read the reason, after at most 5 s.
  void abort(std::string_view reason) const;
  /// Whether the other ranks hear an abort of this one: not `over` processes of the program, nor alone.
  bool reaches_others() const;

  // Parts of this group, made by all of its ranks. Groups may be destroyed in any order.
  /// The ranks of the same `color`, ordered by `key`, then by rank; this process alone where `color` is negative.
  Group split(int color, int key = 0) const;
  /// The listed ranks, which all ranks state alike, in this order; on the others this process alone.
  Group subgroup(const std::vector<int>& ranks) const;

  // Collectives: called by all ranks. @throws DistributedError.
  /// Combines `tensor` over all ranks in place; same shape and dtype on all ranks, on any device. Floating sums may be
  /// added in any order, the same one on all ranks: they read the same bits.
  void all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;
  /// The same on `root` alone; other ranks keep their tensor.
  void reduce(at::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum) const;
  /// Copies the tensor of `root` into that of each rank; same shape and dtype on all ranks.
  void broadcast(at::Tensor& tensor, int root) const;
  /// The bytes of `root`; others may pass anything.
  std::string broadcast(std::string_view bytes, int root) const;
  /// The bytes of each rank, in the order of ranks; the sizes may differ.
  std::vector<std::string> all_gather(std::string_view bytes) const;
  /// The `rows` of all ranks, in the order of ranks, on the device of this rank's `rows`, else on the host; this rank's
  /// entry is `rows` itself. They may differ in their first dimension. A rank without rows passes an undefined tensor;
  /// its entry is empty, or undefined if no rank has rows.
  /// @throws DistributedError on all ranks when dtypes or other dimensions differ.
  std::vector<at::Tensor> all_gather(const at::Tensor& rows) const;
  /// `all_gather` on `root` alone; empty on other ranks.
  std::vector<std::string> gather(std::string_view bytes, int root) const;
  std::vector<at::Tensor> gather(const at::Tensor& rows, int root) const;
  /// The r-th of the root's `parts`, on rank r; one per rank, of any shapes and dtypes. Others pass none. On the part's
  /// device on `root`, on `device` elsewhere.
  at::Tensor scatter(const std::vector<at::Tensor>& parts, int root, at::Device device = at::kCPU) const;
  /// Combines the `rows` of all ranks and returns the part of this rank: `splits[rank]` rows, behind those of the ranks
  /// before. Without `splits` all parts are equal. Combined in the order of ranks; two-byte floats in float32.
  at::Tensor reduce_scatter(const at::Tensor& rows, ReduceOp op = ReduceOp::sum, at::IntArrayRef splits = {}) const;
  /// Sends the r-th of `parts` to rank r, and returns the parts for this rank in the order of ranks. Any shapes and
  /// dtypes, all on one device.
  std::vector<at::Tensor> all_to_all(const std::vector<at::Tensor>& parts) const;
  /// The same with `splits[r]` rows for rank r, equally many without `splits`; returns the received rows as one tensor.
  at::Tensor all_to_all_single(const at::Tensor& rows, at::IntArrayRef splits = {}) const;
  void barrier() const;
  /// With a timeout for this call.
  void barrier(std::chrono::milliseconds timeout) const;

  /// Starts `all_reduce` and returns; several may be in flight. The requests are not compared, except in debug mode:
  /// ranks that start different ones get a failure without its reason, or wrong sums. A tensor that is contiguous, of a
  /// dtype that the backend adds, and in its memory is not copied.
  Work start_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const;
  /// Starts to copy `mine` of each rank into `parts`, one for each rank in their order; all contiguous, of one dtype,
  /// shape and device, also on other ranks. As `start_all_reduce` compares and copies.
  Work start_all_gather(const std::vector<at::Tensor>& parts, const at::Tensor& mine) const;
  /// Starts `all_to_all_single`: of the rows of `input`, `sent[r]` for rank r, into those of `output`, `received[r]`
  /// from it. Contiguous, of one dtype and device. As `start_all_reduce` compares and copies.
  Work start_all_to_all_single(const at::Tensor& output, const at::Tensor& input, at::IntArrayRef received,
                               at::IntArrayRef sent) const;

  // Between two ranks. Messages of one sender and tag arrive in order; tags are 0 and above.
  static constexpr int any_rank = -1;
  /// Returns when `tensor` may change, which can be before or after it was received.
  void send(const at::Tensor& tensor, int to, int tag = 0) const;
  /// Receives into `tensor`, of the sent shape and dtype; an undefined one is made on the host. Returns the sender.
  /// @throws DistributedError when the shapes differ; the message is discarded and the group stays usable.
  int recv(at::Tensor& tensor, int from = any_rank, int tag = 0) const;
  /// Starts a message of bytes and returns; several may be in flight. Nothing but the bytes travels: the receiver calls
  /// `start_recv` with as many, else the backend may end the process. `bytes`: contiguous uint8 in host memory, at
  /// least one. Nobody may change it until `wait` has returned, which waits for the receiver.
  Work start_send(const at::Tensor& bytes, int to, int tag = 0) const;
  Work start_recv(const at::Tensor& bytes, int from, int tag = 0) const;

 private:
  struct Impl;
  friend class GroupCall;
  friend class Work;
  explicit Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace danling::inline v0
