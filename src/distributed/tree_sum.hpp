// Sums of tensors over shards along one binary tree, independent of the ranks that compute the shards.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

#include <distributed/bucket_exchange.hpp>
#include <distributed/sum_tree.hpp>

namespace danling::inline v0::detail {

/// Sums lists of tensors, one list per shard, along a tree over all shards: the result has the same bits for any number
/// of ranks. Each rank adds its shards in order and stores at most one sum per level of its subtree. Undefined tensors
/// count as zeros; a sum is undefined if no shard has the tensor. float16 and bfloat16 are summed in float32.
class TreeSum {
 public:
  struct Options {
    std::vector<Subtree> ranks;  ///< the shards of each rank
    bool shared_memory = true;
    std::chrono::milliseconds timeout = std::chrono::minutes(5);
  };

  /// Called by all ranks. `like`: shapes, dtypes and device of the tensors.
  TreeSum(const std::vector<at::Tensor>& like, Group group, Options options);

  /// Adds the next shard of this rank; takes over its tensors and changes them. No communication.
  /// @throws StateError after the last shard
  void push(std::vector<at::Tensor> shard);
  /// Returns the number of this rank's shards that are still missing.
  std::int64_t missing_shards() const { return own().size() - pushed_; }
  /// Returns true if a tensor is undefined in all shards of this rank.
  bool lacks_any() const;
  /// Returns the sum over all shards of all ranks, in memory of the exchange that is valid until the next call; float32
  /// for float16 and bfloat16. Missing shards count as undefined. Waits for the other ranks.
  /// @param any_lacking  true on all ranks if `lacks_any` is true on any rank
  /// @throws DistributedError
  std::vector<at::Tensor> finish(bool any_lacking);
  void drop();
  void abort(std::string_view reason);
  void set_timeout(std::chrono::milliseconds timeout);

  /// Describes the transport, for logs.
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
