// Differentiable collectives for ranks that hold slices of one computation.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <danling/distributed/group.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::parallel {

/// Lengths of the parts of `size` values on `ranks` ranks, in multiples of `unit` values (such as the size of an
/// attention head): ceil(units / ranks) units each, the last parts shorter or empty, as in PyTorch's DTensor.
/// @throws ConfigError when `unit` does not divide `size`
std::vector<std::int64_t> part_sizes(std::int64_t size, int ranks, std::int64_t unit = 1);

// Every rank of `group` must call these functions in the same order, and run their backward passes: a tensor must
// require gradients on all ranks or on none. In a group of one they return their input. The ranks' tensors are equal
// ("whole"), slices of a tensor along a dimension, or addends of a tensor. On a device each call waits, unless the
// group's backend does not. Gradients are not differentiable: a backward pass with create_graph throws StateError.
// @throws DistributedError; on this rank alone DataError for an undefined or sparse tensor, or sizes that do not fit.

/// Returns a whole tensor for a computation that the ranks split. Backward: sums the gradients. (Megatron-LM's f)
at::Tensor copy_to_group(const at::Tensor& input, const Group& group);
/// Sums addends. Backward: passes the gradient unchanged. (Megatron-LM's g)
at::Tensor reduce_from_group(const at::Tensor& input, const Group& group);
/// Concatenates slices, which may differ in length, for a computation that all ranks repeat. Backward: this rank's
/// slice.
at::Tensor gather_from_group(const at::Tensor& input, const Group& group, std::int64_t dim = -1);
/// Returns this rank's slice of a whole tensor. Backward: concatenates.
/// @param sizes  sizes of the slices, one per rank; part_sizes() if empty
at::Tensor scatter_to_group(const at::Tensor& input, const Group& group, std::int64_t dim = -1,
                            at::IntArrayRef sizes = {});

/// Concatenates parts of sequences for a computation that the ranks split. Backward: sums the gradients; each rank gets
/// those of its part.
at::Tensor gather_sequence(const at::Tensor& input, const Group& group, std::int64_t dim = 1);
/// Sums addends and returns this rank's part of the sequence: the transpose of gather_sequence().
at::Tensor reduce_scatter_sequence(const at::Tensor& input, const Group& group, std::int64_t dim = 1,
                                   at::IntArrayRef sizes = {});

/// Copies parameters and buffers of rank 0 to all ranks, in place, except slices along `axis`. Every rank must call it.
void broadcast_module(const torch::nn::Module& module, const Group& group, std::string_view axis = "tensor");

}  // namespace danling::inline v0::parallel
