// Group of an axis that the topology may lack.
#pragma once

#include <algorithm>
#include <string_view>

#include <danling/parallel/topology.hpp>

namespace danling::inline v0::parallel::detail {

/// Returns only this process if the topology has no such axis: a layer sliced along it then stays whole.
inline Group axis_group(const ParallelContext& context, std::string_view axis) {
  const auto& axes = context.topology().axes();
  const bool known =
      std::any_of(axes.begin(), axes.end(), [&](const ParallelAxis& other) { return other.name == axis; });
  return known ? context.group(axis) : Group();
}

}  // namespace danling::inline v0::parallel::detail
