// Context parallel: each rank has a part of every sequence. Parts, their positions, and whole sequences again.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel {

// `group` has the C ranks of the axis `context`; alone, every function returns its tensor. Balanced, a sequence is cut
// into 2C equal parts, of which rank r has the parts r and 2C-1-r, so that all ranks have the same work in causal
// attention (PyTorch: context_parallel with load balancing). Otherwise rank r has the r-th of C parts.

/// How many tokens to add to sequences of `length` so that they divide into the parts: the loss must ignore them.
std::int64_t context_padding(std::int64_t length, const Group& group, bool balanced = true);

/// This rank's part of whole sequences, which all ranks have. Without communication; its gradient is that of the part,
/// so gradients of what came before are summed over the ranks.
/// @param dim  of the tokens, also negative
/// @throws DataError, with the arithmetic, for a length that does not divide into the parts
at::Tensor context_part(const at::Tensor& whole, std::int64_t dim, const Group& group, bool balanced = true);

/// int64 [length / C]: where the tokens of this rank's part stand in sequences of `length`, for embeddings of
/// positions. @throws DataError as `context_part`.
at::Tensor context_positions(std::int64_t length, const Group& group, bool balanced = true,
                             at::Device device = at::kCPU);

/// Whole sequences of the parts of all ranks, in order: undoes `context_part`. Called by all ranks. The backward pass
/// sums the gradients of all ranks: the objective is the sum of their losses, as everywhere along this axis.
at::Tensor gather_context(const at::Tensor& part, std::int64_t dim, const Group& group, bool balanced = true);

}  // namespace danling::inline v0::parallel
