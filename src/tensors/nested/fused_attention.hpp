// Attention of packed sequences by LibTorch's fused kernels, which never hold the scores.
#pragma once

#include <cstdint>
#include <optional>

#include "tensors/nested/ragged.hpp"

namespace danling::inline v0::detail {

struct FusedAttention {
  RaggedPtr queries, keys;  ///< lengths of the sequences
  double scale = 1, dropout = 0;
  bool is_causal = false;
};

enum class AttentionKernel { none, flash, efficient, cpu };

/// For values (rows, [heads,] size). `none` where no kernel takes them, or the program has switched off those that do:
/// at::globalContext().setSDPUseFlash(false), setSDPUseMemEfficient(false). The same with gradients and without.
AttentionKernel find_attention_kernel(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                                      const FusedAttention& attention);
/// Whether the program allows a kernel at all.
bool may_fuse_attention();

/// (rows of the queries, [heads,] size). Differentiable; twice without dropout and mask, by computing the scores then.
at::Tensor attend_fused(AttentionKernel kernel, const at::Tensor& queries, const at::Tensor& keys,
                        const at::Tensor& values, const FusedAttention& attention);

}  // namespace danling::inline v0::detail
