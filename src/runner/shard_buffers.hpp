// Buffers of a model whose batches are computed in shards: all shards begin with the same values, and the buffers
// become the mean of theirs.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>
#include <danling/runner/model.hpp>

#include "distributed/tree_sum.hpp"

namespace danling::inline v0::detail {

/// Adds the changes of the shards along the tree of all shards, so that the sum does not depend on their ranks.
class ShardBuffers {
 public:
  /// `model` is on its device. Called by all ranks.
  ShardBuffers(const ModelHandle& model, const Group& group, const TreeSum::Options& options);

  /// Before the first shard of a window, on every rank.
  void keep();
  /// After a shard: takes its changes out of the buffers.
  void push();
  /// The mean over the shards of the window. Called by all ranks.
  void combine();
  /// Null for a model without buffers.
  TreeSum* sums() const { return sums_.get(); }

 private:
  std::vector<at::Tensor> buffers_, before_;
  std::unique_ptr<TreeSum> sums_;
};

}  // namespace danling::inline v0::detail
