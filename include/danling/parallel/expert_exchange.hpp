// all_to_all with gradients: sends rows to the ranks that process them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel {

/// Sends the first `sent[0]` of `rows` to rank 0, the next `sent[1]` to rank 1, and so on; returns `received[r]` rows
/// of each rank r, in rank order. The backward pass sends the gradients back. Every rank of the group must call it, and
/// run its backward pass; a group of one returns `rows`. No second derivatives.
/// @param rows  [sum of `sent`, ...]; all sizes but the first are equal on all ranks
/// @throws DistributedError on all ranks when the counts do not add up to the rows; and on a rank that gets another
///         number of rows than `received`
at::Tensor all_to_all(const at::Tensor& rows, const Group& group, at::IntArrayRef sent, at::IntArrayRef received);

}  // namespace danling::inline v0::parallel
