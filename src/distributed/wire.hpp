// Transport of a group's messages: what a backend must carry.
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

/// An operation in flight. Holds its tensors until it is done, also when this handle is gone.
class Transfer {
 public:
  virtual ~Transfer() = default;

  virtual bool done() = 0;
  /// Waits at most `limit`; false if it is not done then. Throws the backend's error if it failed.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
  /// Whether `wait_for` may be called again after it returned false. If not, `limit` is the timeout of the operation,
  /// and only `cancel` ends it earlier.
  virtual bool resumable() const { return true; }
  /// Lets `wait_for` return or throw soon. Called from any thread.
  virtual void cancel() {}
  /// Sender of a received message.
  virtual int source() { return -1; }
};

using TransferPtr = std::unique_ptr<Transfer>;

/// The operations of one group over one kind of memory. All ranks start the same operations in the same order, except
/// `send` and `recv`. Tensors are contiguous, and in the memory that the wire carries; failures throw any exception.
/// A class that carries a part of them passes the others on to another wire.
class Wire {
 public:
  virtual ~Wire() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// For operations that start afterwards.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  /// `mine` of each rank, alike in size everywhere, into `outputs` in the order of ranks.
  virtual TransferPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor mine) = 0;
  virtual TransferPtr broadcast(at::Tensor tensor, int root) = 0;
  /// The wire for all-gathers of which several are in flight.
  virtual Wire& for_several() { return *this; }
  /// In place, for the dtypes that `Reduction` (reduction.hpp) carries; never `mean`.
  virtual TransferPtr all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  /// Leaves anything in the tensors of other ranks than `root`.
  virtual TransferPtr reduce(at::Tensor tensor, int root, ReduceOp op) = 0;
  /// Bytes: `sent[r]` of `input` to rank r, `received[r]` from it into `output`, both in the order of ranks.
  virtual TransferPtr all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> received,
                                 std::vector<std::int64_t> sent) = 0;
  virtual TransferPtr send(at::Tensor tensor, int to, int tag) = 0;
  /// From any rank if `from` is negative.
  virtual TransferPtr recv(at::Tensor tensor, int from, int tag) = 0;
};

namespace detail {

/// Message of a LibTorch exception, without its stack.
std::string reason_of(const std::exception& error);

}  // namespace detail

}  // namespace danling::inline v0
