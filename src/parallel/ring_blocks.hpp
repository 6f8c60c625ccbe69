// Attention over one pair of blocks, and the pairs that a rank computes.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::parallel::detail {

/// Rows of this rank's queries and of another rank's keys that attend to each other.
struct BlockPair {
  std::int64_t query_begin = 0, query_count = 0;
  std::int64_t key_begin = 0, key_count = 0;
  bool is_causal = false;  ///< query i attends only to the keys 0 to i of the pair
};

struct RingLayout {
  bool is_causal = false;
  bool balanced = true;
  std::int64_t queries = 0, keys = 0;  ///< tokens per rank; if balanced, in two parts
};

/// The rows that `rank` computes with the keys of `source`; empty if all of them come later.
std::optional<BlockPair> block_pair(const RingLayout& layout, std::int64_t rank, std::int64_t source);

/// float64 for float64, otherwise float32.
at::ScalarType accumulate_type(at::ScalarType type);

/// Attention over the keys of one pair, in the accumulate dtype.
struct BlockOutput {
  at::Tensor values;     ///< [batch, heads, queries, value head dim]
  at::Tensor logsumexp;  ///< [batch, heads, queries] of the scaled scores
};
BlockOutput attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                   double scale);
/// Merges `block` into the result over other keys, in place.
void merge(const BlockOutput& into, const BlockOutput& block);

struct BlockGradients {
  at::Tensor query, key, value;  ///< with the shapes of the arguments, in any floating dtype
};
/// Gradients of one pair; `output` and `logsumexp` are those over all keys.
BlockGradients attend_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const at::Tensor& output, const at::Tensor& logsumexp,
                               bool is_causal, double scale);

}  // namespace danling::inline v0::parallel::detail
