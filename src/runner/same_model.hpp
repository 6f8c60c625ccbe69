// Makes a model the same on all ranks.
#pragma once

#include <danling/distributed/group.hpp>
#include <danling/runner/model.hpp>

namespace danling::inline v0::detail {

/// Copies parameters and buffers of rank 0 to all ranks. Called by all ranks.
/// @throws DistributedError on all of them when names, shapes or dtypes differ
void make_same(const Group& group, const ModelHandle& model);

}  // namespace danling::inline v0::detail
