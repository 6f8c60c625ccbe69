// Slices parameters: a rank keeps one part.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

/// Start of this rank's part.
std::int64_t part_offset(const std::vector<std::int64_t>& sizes, int rank);

/// Keeps this rank's part of the parameter of rank 0, along `dim`, and calls set_slices(). Does not change a parameter
/// that is already sliced this way: two layers may share it. Every rank must call it.
/// @param sizes  sizes of the ranks' parts
/// @throws StateError for a parameter that is sharded, or sliced in another way over the axis
void slice_parameter(const at::Tensor& parameter, std::string_view name, const Group& group, std::string_view axis,
                     std::int64_t dim, const std::vector<std::int64_t>& sizes);

}  // namespace danling::inline v0::detail
