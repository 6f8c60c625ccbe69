// all_to_all with gradients: rows that other ranks compute.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel {

/// Sends the first `sent[0]` of `rows` to rank 0, the next `sent[1]` to rank 1, and so on; returns `received[r]` rows
/// of each rank r, in the order of ranks. The backward pass sends their gradients back. Called by all ranks of the
/// group, in the backward pass too; a group alone returns `rows`. No second derivatives.
/// @param rows  [sum of `sent`, ...], alike on all ranks but for the first size
/// @throws DistributedError on all ranks for counts that do not add up to the rows; where a rank got another number of
///         rows than `received`, on that rank
at::Tensor all_to_all(const at::Tensor& rows, const Group& group, at::IntArrayRef sent, at::IntArrayRef received);

}  // namespace danling::inline v0::parallel
