// Context parallel: splits sequences over ranks, and gathers them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel {

// `group` holds the C ranks of the axis `context`; in a group of one, context_part and gather_context return their
// tensor. Balanced: a sequence is split into 2C equal parts; rank r has the parts r and 2C-1-r, so that all ranks have
// the same work in causal attention (PyTorch: context_parallel with load balancing). Otherwise rank r has the r-th of C
// parts.

/// Number of tokens to append to sequences of `length` to divide them into the parts; the loss must ignore them.
std::int64_t context_padding(std::int64_t length, const Group& group, bool balanced = true);

/// This rank's part of whole sequences that all ranks have. No communication. Its gradient is that of the part: the
/// ranks must sum the gradients of earlier operations.
/// @param dim  dimension of the tokens; may be negative
/// @throws DataError, with the arithmetic, for a length that does not divide into the parts
at::Tensor context_part(const at::Tensor& whole, std::int64_t dim, const Group& group, bool balanced = true);

/// int64 [length / C]: the positions of this rank's tokens in sequences of `length`, for position embeddings.
/// @throws DataError as `context_part`.
at::Tensor context_positions(std::int64_t length, const Group& group, bool balanced = true,
                             at::Device device = at::kCPU);

/// Joins the parts of all ranks to whole sequences, the inverse of `context_part`. Every rank must call it. The
/// backward pass sums the gradients of all ranks: the objective is the sum of their losses, as everywhere along this
/// axis.
at::Tensor gather_context(const at::Tensor& part, std::int64_t dim, const Group& group, bool balanced = true);

}  // namespace danling::inline v0::parallel
