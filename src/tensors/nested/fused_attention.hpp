// Attention of packed sequences by LibTorch's fused kernels, which do not store the scores.
#pragma once

#include <cstdint>
#include <optional>

#include <tensors/nested/ragged.hpp>

namespace danling::inline v0::detail {

struct FusedAttention {
  RaggedPtr queries, keys;  ///< sequence lengths
  double scale = 1, dropout = 0;
  bool is_causal = false;
};

enum class AttentionKernel { none, flash, efficient, cpu };

/// Chooses a kernel for values (rows, [heads,] size); `none` if no kernel supports them or the program disables those
/// that do: at::globalContext().setSDPUseFlash(false), setSDPUseMemEfficient(false). The choice does not depend on
/// gradients.
AttentionKernel find_attention_kernel(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                                      const FusedAttention& attention);
/// Returns true if the program allows any fused kernel.
bool may_fuse_attention();

/// Returns (rows of the queries, [heads,] size). Differentiable; twice without dropout and mask, by computing the
/// scores.
at::Tensor attend_fused(AttentionKernel kernel, const at::Tensor& queries, const at::Tensor& keys,
                        const at::Tensor& values, const FusedAttention& attention);

}  // namespace danling::inline v0::detail
