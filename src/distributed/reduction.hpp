// Conversion of a tensor for a reduction.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/distributed/reduce_op.hpp>

namespace danling::inline v0::detail {

/// The contiguous tensor that a wire reduces for `tensor`; `tensor` itself if the wire supports it.
class Reduction {
 public:
  /// @param stays  the wire transfers memory of the tensor's device
  /// @throws DistributedError if `op` does not support the dtype; the same error for equal dtypes and shapes.
  Reduction(std::string_view where, const at::Tensor& tensor, ReduceOp op, bool stays);

  const at::Tensor& carried() const { return carried_; }
  /// The operation of the wire; `mean` is sent as a sum.
  ReduceOp op() const { return op_ == ReduceOp::mean ? ReduceOp::sum : op_; }
  /// Copies the result over `size` ranks back to the tensor.
  void finish(int size);

 private:
  at::Tensor tensor_;
  at::Tensor carried_;
  ReduceOp op_;
};

/// Checks the dtype and operation without a tensor, as the constructor does.
void check_reducible(std::string_view where, at::ScalarType type, ReduceOp op);

/// Returns the request that ranks compare; includes the device only if that determines the transport.
std::string reduction_request(const at::Tensor& tensor, ReduceOp op, bool stays);
/// Checks a collective of a group of one as for several ranks.
void check_alone(std::string_view operation, const at::Tensor& tensor, ReduceOp op);

/// `Float [2, 3]`.
std::string request_text(const at::Tensor& tensor);

}  // namespace danling::inline v0::detail
