// Sums of tensors over shards, along one binary tree, whoever computes the shards.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

#include "distributed/bucket_exchange.hpp"
#include "distributed/sum_tree.hpp"

namespace danling::inline v0::detail {

/// A list of tensors for each shard, added along the tree of all shards: the result has the same bits for any number of
/// ranks. Each rank adds its shards in their order; of these it keeps no more than one sum per level of its subtree.
/// Undefined tensors count as zeros, and their sum stays undefined where no shard has one. Numbers of 16 bits are added
/// in float32.
class TreeSum {
 public:
  struct Options {
    std::vector<Subtree> ranks;  ///< the shards of each rank
    bool shared_memory = true;
    std::chrono::milliseconds timeout = std::chrono::minutes(5);
  };

  /// Called by all ranks. `like`: shapes, dtypes and device of the tensors.
  TreeSum(const std::vector<at::Tensor>& like, Group group, Options options);

  /// Adds the next shard of this rank, and takes over its tensors: it changes them. Nothing is communicated.
  /// @throws StateError after the last of them
  void push(std::vector<at::Tensor> shard);
  /// Shards of this rank that have not come.
  std::int64_t missing_shards() const { return own().size() - pushed_; }
  /// Whether all own shards together lack one of the tensors.
  bool lacks_any() const;
  /// The sum over all shards of all ranks, in the memory of the exchange until the next call; float32 for numbers of 16
  /// bits. Shards that have not come count as undefined. Waits for the other ranks. @throws DistributedError.
  /// @param any_lacking  whether `lacks_any` is true on any rank: the same on all ranks
  std::vector<at::Tensor> finish(bool any_lacking);
  void drop();
  void abort(std::string_view reason);
  void set_timeout(std::chrono::milliseconds timeout);

  /// How sums are made, for logs.
  const std::string& text() const { return text_; }

 private:
  struct Node {
    std::vector<at::Tensor> tensors;
    std::int64_t shards = 1;
  };

  const Subtree& own() const { return options_.ranks[static_cast<std::size_t>(group_.rank())]; }
  void add(std::vector<at::Tensor>& left, std::vector<at::Tensor> right) const;

  Group group_;
  Options options_;
  std::vector<at::Tensor> views_;  // of the exchanged memory, one per tensor
  std::unique_ptr<BucketExchange> exchange_;
  std::size_t buckets_ = 0;
  std::string text_ = "one process";
  std::vector<Node> nodes_;  // from the largest subtree to the smallest
  std::int64_t pushed_ = 0;
};

}  // namespace danling::inline v0::detail
