// Transport of a group's data: the interface of a backend.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <danling/distributed/reduce_op.hpp>

namespace danling::inline v0 {

/// An operation in flight. Keeps its tensors alive until it is done, even without this handle.
class Transfer {
 public:
  virtual ~Transfer() = default;

  virtual bool done() = 0;
  /// Waits at most `limit`; returns false if it is not done by then. Throws the backend's error.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
  /// Returns true if `wait_for` may be called again after it returned false. If not, `limit` is the operation's
  /// timeout, and only `cancel` ends it earlier.
  virtual bool resumable() const { return true; }
  /// Makes `wait_for` return or throw soon. Thread-safe.
  virtual void cancel() {}
  /// Returns the sender of a received message.
  virtual int source() { return -1; }
};

using TransferPtr = std::unique_ptr<Transfer>;

/// The operations of one group over one kind of memory. All ranks start the same operations in the same order, except
/// `send` and `recv`. Tensors are contiguous and in memory that the wire transfers. Failures throw any exception. A
/// class that implements some operations forwards the others to another wire.
class Wire {
 public:
  virtual ~Wire() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Sets the timeout of later operations.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  /// Gathers `mine` of each rank, of equal size, into `outputs` in rank order.
  virtual TransferPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor mine) = 0;
  virtual TransferPtr broadcast(at::Tensor tensor, int root) = 0;
  /// Returns the wire for all-gathers of which several are in flight.
  virtual Wire& for_several() { return *this; }
  /// In place, for the dtypes that `Reduction` (reduction.hpp) supports; never `mean`.
  virtual TransferPtr all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  /// The tensors of ranks other than `root` are undefined afterwards.
  virtual TransferPtr reduce(at::Tensor tensor, int root, ReduceOp op) = 0;
  /// In bytes: sends `sent[r]` of `input` to rank r, and receives `received[r]` from rank r into `output`, both in rank
  /// order.
  virtual TransferPtr all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> received,
                                 std::vector<std::int64_t> sent) = 0;
  virtual TransferPtr send(at::Tensor tensor, int to, int tag) = 0;
  /// A negative `from` receives from any rank.
  virtual TransferPtr recv(at::Tensor tensor, int from, int tag) = 0;
};

namespace detail {

/// Returns the message of a LibTorch exception without its stack trace.
std::string reason_of(const std::exception& error);

}  // namespace detail

}  // namespace danling::inline v0
