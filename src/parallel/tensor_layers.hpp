// What sliced layers compute, of their parameters: for layers of danling, and for parameters of LibTorch's layers.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

struct ColumnLinear {
  bool gather_output = false;
  bool sequence_parallel = false;
  std::int64_t sequence_dim = 1;
};
/// @param bias  this rank's; undefined without
at::Tensor column_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Group& group,
                         const ColumnLinear& options);

struct RowLinear {
  bool input_is_parallel = true;
  bool sequence_parallel = false;
  std::int64_t sequence_dim = 1;
  std::vector<std::int64_t> input_sizes = {};  ///< of the ranks, for a whole input
};
at::Tensor row_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Group& group,
                      const RowLinear& options);

struct VocabEmbedding {
  bool sequence_parallel = false;
  std::int64_t sequence_dim = 1;
  std::int64_t begin = 0;  ///< of this rank's rows
  std::int64_t num_embeddings = 0;
};
/// @param padding_idx  -1: none
at::Tensor vocab_embedding(const at::Tensor& weight, const at::Tensor& indices, std::int64_t padding_idx,
                           const Group& group, const VocabEmbedding& options);

}  // namespace danling::inline v0::detail
