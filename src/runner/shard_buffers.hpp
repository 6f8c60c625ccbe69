// Buffers of a model whose batches are computed in shards: all shards start with the same values, and the result is the
// mean of theirs.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>
#include <danling/runner/model.hpp>

#include <distributed/tree_sum.hpp>

namespace danling::inline v0::detail {

/// Adds the changes of the shards along the tree of all shards, so that the sum does not depend on which rank computes
/// them.
class ShardBuffers {
 public:
  /// Requires `model` on its device. Called by all ranks.
  ShardBuffers(const ModelHandle& model, const Group& group, const TreeSum::Options& options);

  /// Called before the first shard of a window, on every rank.
  void keep();
  /// Called after a shard: moves its changes from the buffers into the sum.
  void push();
  /// Sets the buffers to the mean over the shards of the window. Called by all ranks.
  void combine();
  /// Null for a model without buffers.
  TreeSum* sums() const { return sums_.get(); }

 private:
  std::vector<at::Tensor> buffers_, before_;
  std::unique_ptr<TreeSum> sums_;
};

}  // namespace danling::inline v0::detail
