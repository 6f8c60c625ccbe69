// Ring attention: scaled dot product attention over sequences that are split over the ranks of a group.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <danling/distributed/group.hpp>
#include <danling/parallel/topology.hpp>

namespace danling::inline v0::parallel {

struct RingAttentionFuncOptions {
  bool is_causal = false;
  /// Factor of the products of queries and keys; unset: 1 / sqrt(head dim).
  std::optional<double> scale = std::nullopt;
  /// Query head h reads the key head h / (query heads / key heads).
  bool enable_gqa = false;
  /// Selects the parts of a sequence that ranks have; see context_parallel.hpp. Only matters for causal attention.
  bool balanced = true;
};

/// torch's scaled_dot_product_attention over whole sequences of which each rank has a part (`context_part`). Keys and
/// values travel around the ring once, and again with their gradients in the backward pass; each rank combines the
/// blocks by their log-sum-exp (Liu et al., 2023). A block travels while the previous one is computed. Scores exist for
/// one pair of blocks at a time; LibTorch's flash kernel on the CPU stores none. No dropout, no mask besides the causal
/// one, no second derivatives.
///
/// All ranks must call it with equal shapes, in the same order, and run its backward pass, even ranks that need no
/// gradients. Values on a device travel through the host: each of the C-1 steps waits for it.
/// @param query  [batch, heads, local length, head dim]; float64, float32, bfloat16 or float16. Blocks of narrower
///               dtypes are combined in float32
/// @param key, value  [batch, key heads, local length, head dim]; the head dim of `value` may differ. Causal: as many
///               tokens as `query`
/// @throws DataError for invalid shapes and dtypes, DistributedError when they differ between ranks
at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Group& group,
                          const RingAttentionFuncOptions& options = {});

struct RingAttentionOptions {
  std::int64_t embed_dim = 0;
  std::int64_t num_heads = 1;
  std::int64_t num_key_heads = 0;  ///< fewer than num_heads: grouped-query attention; 0: num_heads
  bool bias = true;
  bool is_causal = true;
  bool balanced = true;
};

/// Multi-head self attention: qkv, ring_attention, projection. All ranks have the same parameters; their gradients are
/// those of the local tokens and must be summed over `context`, which is in the domain `fsdp`.
/// Parameters: qkv [(heads + 2 key heads) head dim, embed], projection [embed, embed].
class RingAttentionImpl : public torch::nn::Cloneable<RingAttentionImpl> {
 public:
  /// Changes queries and keys, [batch, heads, local length, head dim], for example by rotary embeddings of
  /// `context_positions`.
  using Rotate = std::function<void(at::Tensor& query, at::Tensor& key)>;

  /// @throws ConfigError when the heads do not divide the sizes
  explicit RingAttentionImpl(const RingAttentionOptions& options);

  /// Part of LibTorch's clone protocol: draws new parameters.
  void reset() override;
  /// @param input  [batch, local length, embed_dim], this rank's part of each sequence
  at::Tensor forward(const at::Tensor& input, const Rotate& rotate = {});
  /// Uses the ranks of the axis `context`; before this call the layer works on one process.
  void parallelize(const ParallelContext& context);
  const Group& group() const { return group_; }
  void pretty_print(std::ostream& stream) const override;

  RingAttentionOptions options;
  torch::nn::Linear qkv = nullptr, projection = nullptr;

 private:
  Group group_;
};
TORCH_MODULE(RingAttention);

}  // namespace danling::inline v0::parallel
