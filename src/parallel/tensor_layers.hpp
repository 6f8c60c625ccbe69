// Computation of sliced layers: for danling's layers, and for parameters of LibTorch's layers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

struct ColumnLinear {
  bool gather_output = false;
  bool sequence_parallel = false;
  std::int64_t sequence_dim = 1;
};
/// Called before and after the product of the input and this rank's weight.
at::Tensor column_input(const at::Tensor& input, const Group& group, const ColumnLinear& options);
at::Tensor column_output(const at::Tensor& product, const Group& group, const ColumnLinear& options);
/// @param bias  bias of this rank; undefined without one
at::Tensor column_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Group& group,
                         const ColumnLinear& options);

struct RowLinear {
  bool input_is_parallel = true;
  bool sequence_parallel = false;
  std::int64_t sequence_dim = 1;
  std::vector<std::int64_t> input_sizes = {};  ///< sizes of the ranks' inputs, for a whole input
};
/// Called before and after the product. The bias is added afterwards.
/// @param features  number of inputs of this rank's weight
at::Tensor row_input(const at::Tensor& input, std::int64_t features, const Group& group, const RowLinear& options);
at::Tensor row_output(const at::Tensor& product, const Group& group, const RowLinear& options);
at::Tensor row_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Group& group,
                      const RowLinear& options);

struct VocabEmbedding {
  bool sequence_parallel = false;
  std::int64_t sequence_dim = 1;
  std::int64_t begin = 0;  ///< first row of this rank
  std::int64_t num_embeddings = 0;
  std::optional<std::int64_t> padding_idx = {};  ///< not passed to the operator
};
/// @param padding_idx  -1: none
at::Tensor vocab_embedding(const at::Tensor& weight, const at::Tensor& indices, std::int64_t padding_idx,
                           const Group& group, const VocabEmbedding& options);

}  // namespace danling::inline v0::detail
