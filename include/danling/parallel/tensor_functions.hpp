// Differentiable exchanges between ranks that hold slices of one computation.
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

/// Lengths of the parts of `size` values on `ranks` ranks, in whole units of `unit` values (the values of an attention
/// head, say): ceil(units / ranks) units each, the last parts shorter or empty, as in PyTorch's DTensor.
/// @throws ConfigError when `unit` does not divide `size`
std::vector<std::int64_t> part_sizes(std::int64_t size, int ranks, std::int64_t unit = 1);

// Each is called by all ranks of `group`, in the same order, and so is its backward pass: a tensor requires gradients
// on all ranks, or on none. `group` of one process: returns its input. Ranks' tensors are equal ("whole"), or slices of
// one along a dimension, or addends of one. On a device each exchange waits for it unless the group's backend does not.
// Gradients are not differentiable: a backward pass with create_graph throws StateError. @throws DistributedError.

/// A whole tensor, for a computation of which each rank does a part. Backward: sums the gradients. (Megatron-LM's f)
at::Tensor copy_to_group(const at::Tensor& input, const Group& group);
/// Sums addends. Backward: the gradient as it is. (Megatron-LM's g)
at::Tensor reduce_from_group(const at::Tensor& input, const Group& group);
/// Concatenates slices, which may differ in length, for a computation that all ranks do alike. Backward: this rank's
/// slice.
at::Tensor gather_from_group(const at::Tensor& input, const Group& group, std::int64_t dim = -1);
/// This rank's slice of a whole tensor. Backward: concatenates.
/// @param sizes  of the slices, one for each rank; part_sizes() when empty
at::Tensor scatter_to_group(const at::Tensor& input, const Group& group, std::int64_t dim = -1,
                            at::IntArrayRef sizes = {});

/// Concatenates parts of sequences, for a computation of which each rank does a part. Backward: sums the gradients,
/// of which each rank gets those of its part.
at::Tensor gather_sequence(const at::Tensor& input, const Group& group, std::int64_t dim = 1);
/// Sums addends, of which each rank gets a part of the sequence: gather_sequence() backwards.
at::Tensor reduce_scatter_sequence(const at::Tensor& input, const Group& group, std::int64_t dim = 1,
                                   at::IntArrayRef sizes = {});

/// Copies parameters and buffers of rank 0, in place, but for slices along `axis`. Called by all ranks.
void broadcast_module(const torch::nn::Module& module, const Group& group, std::string_view axis = "tensor");

}  // namespace danling::inline v0::parallel
