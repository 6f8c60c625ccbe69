// Values that ranks along an axis share: parts of them, sums, and their gradients.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::parallel::expert_axis {

// All ranks of the axis have the same input and the same loss. A group of one does nothing.

/// Part `rank` of `size` things in `parts` parts of ceil(size / parts): the last ones are shorter, or empty.
struct Part {
  std::int64_t begin = 0, count = 0;
};
Part part_of(std::int64_t size, std::int64_t parts, std::int64_t rank);

/// This rank's part of the rows; the gradient is that of all rows.
at::Tensor split_rows(const at::Tensor& rows, const Group& group);
/// The rows of all parts; the gradient is that of this rank's part.
at::Tensor gather_rows(const at::Tensor& part, const Group& group);
/// The sum of the ranks' values, in which each rank's has the gradient of the sum.
at::Tensor sum_values(const at::Tensor& values, const Group& group);
/// The same values; gradients, to which each rank computes a part, are summed.
at::Tensor sum_gradients(const at::Tensor& values, const Group& group);

}  // namespace danling::inline v0::parallel::expert_axis
