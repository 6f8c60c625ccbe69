// Parameters of which a rank keeps one part.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

/// Where this rank's part begins.
std::int64_t part_offset(const std::vector<std::int64_t>& sizes, int rank);

/// Keeps this rank's part of the parameter of rank 0, along `dim`, and calls set_slices(). A parameter that is
/// sliced in this way already stays as it is: two layers may share one. All ranks.
/// @param sizes  of the ranks' parts
/// @throws StateError for one that is sliced in another way over the axis, or sharded
void slice_parameter(const at::Tensor& parameter, std::string_view name, const Group& group, std::string_view axis,
                     std::int64_t dim, const std::vector<std::int64_t>& sizes);

}  // namespace danling::inline v0::detail
