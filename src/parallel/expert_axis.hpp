// Splits, gathers and sums values over the ranks of an axis, with gradients.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel::expert_axis {

// All ranks of the axis have the same input and the same loss. No effect in a group of one.

/// Part `rank` of `size` items in `parts` parts of ceil(size / parts): the last parts are shorter or empty.
struct Part {
  std::int64_t begin = 0, count = 0;
};
Part part_of(std::int64_t size, std::int64_t parts, std::int64_t rank);

/// This rank's part of the rows; the gradient covers all rows.
at::Tensor split_rows(const at::Tensor& rows, const Group& group);
/// Gathers the rows of all parts; the gradient is that of this rank's part.
at::Tensor gather_rows(const at::Tensor& part, const Group& group);
/// Sums the ranks' values; each rank's values get the gradient of the sum.
at::Tensor sum_values(const at::Tensor& values, const Group& group);
/// Returns the values unchanged; sums their gradients, of which each rank computes a part.
at::Tensor sum_gradients(const at::Tensor& values, const Group& group);

}  // namespace danling::inline v0::parallel::expert_axis
