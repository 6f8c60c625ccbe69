// A tensor on its way through a reduction.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/distributed/reduce_op.hpp>

namespace danling::inline v0::detail {

/// The contiguous tensor that a wire combines for `tensor`, which is the tensor itself if the wire can take it.
class Reduction {
 public:
  /// `stays`: the wire carries the memory of the tensor's device.
  /// @throws DistributedError, the same one for tensors alike, if the numbers cannot be combined by `op`.
  Reduction(std::string_view where, const at::Tensor& tensor, ReduceOp op, bool stays);

  const at::Tensor& carried() const { return carried_; }
  /// The operation of the wire; `mean` is a sum.
  ReduceOp op() const { return op_ == ReduceOp::mean ? ReduceOp::sum : op_; }
  /// Writes what the wire left in `carried` of `size` ranks to the tensor.
  void finish(int size);

 private:
  at::Tensor tensor_;
  at::Tensor carried_;
  ReduceOp op_;
};

/// Checks what `Reduction` does.
void check_reducible(std::string_view where, at::ScalarType type, ReduceOp op);

/// A request as ranks compare it; the device counts only if it decides the way.
std::string reduction_request(const at::Tensor& tensor, ReduceOp op, bool stays);
/// A program that works alone also works with others.
void check_alone(std::string_view operation, const at::Tensor& tensor, ReduceOp op);

/// `Float [2, 3]`.
std::string request_text(const at::Tensor& tensor);

}  // namespace danling::inline v0::detail
