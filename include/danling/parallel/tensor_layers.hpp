// Layers with parameters sliced over the ranks of an axis.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>
#include <vector>

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <danling/distributed/group.hpp>
#include <danling/parallel/parallelizable.hpp>

namespace danling::inline v0::parallel {

/// Base of these layers: whole at construction, like LibTorch's layers, until parallelize() keeps this rank's slices.
/// In a group of one process they stay whole. Parameters keep their names and addresses; set_slices() describes them.
class ParallelLayer : public torch::nn::Module, public Parallelizable {
 public:
  void parallelize(const ParallelContext& context) final;
  /// Slices over another axis than "tensor". Slices are those of the parameters of rank 0 of the axis, which the other
  /// ranks receive. @throws StateError for a layer that is already sliced.
  void parallelize(const ParallelContext& context, std::string_view axis);

  /// The ranks with the other slices; before parallelize() only this process.
  const Group& group() const { return group_; }

 protected:
  /// Keeps the slices of the parameters. `group()` is set and has more than one process.
  virtual void slice(std::string_view axis) = 0;

 private:
  Group group_;
  bool is_sliced_ = false;
};

struct ColumnParallelLinearOptions {
  ColumnParallelLinearOptions(std::int64_t in_features, std::int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(std::int64_t, in_features);
  TORCH_ARG(std::int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
  /// True: every rank gets the whole output.
  TORCH_ARG(bool, gather_output) = false;
  /// True: the input is this rank's part of the sequences, along `sequence_dim`.
  TORCH_ARG(bool, sequence_parallel) = false;
  TORCH_ARG(std::int64_t, sequence_dim) = 1;
  /// Number of consecutive outputs that stay on one rank, such as the size of an attention head.
  TORCH_ARG(std::int64_t, unit) = 1;
};

/// y = x W^T + b, where each rank computes some outputs: W and b are sliced along dimension 0. Parameters and their
/// values are those of torch::nn::Linear: weight [out, in], bias [out]. (Megatron-LM; PyTorch: ColwiseParallel)
///
/// For keys, queries and values in one layer, order the outputs by head, [head, q k v, size], so that a slice is one
/// range: `unit(3 * head_size)`, and `view({batch, length, -1, 3, head_size})` of the output.
class ColumnParallelLinearImpl : public ParallelLayer {
 public:
  ColumnParallelLinearImpl(std::int64_t in_features, std::int64_t out_features)
      : ColumnParallelLinearImpl(ColumnParallelLinearOptions(in_features, out_features)) {}
  explicit ColumnParallelLinearImpl(const ColumnParallelLinearOptions& options);

  /// @param input  [..., in_features], the same on all ranks, or this rank's part of the sequences
  /// @return [..., this rank's outputs], or [..., out_features] with gather_output
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  ColumnParallelLinearOptions options;
  at::Tensor weight, bias;

 protected:
  void slice(std::string_view axis) override;
};
TORCH_MODULE(ColumnParallelLinear);

struct RowParallelLinearOptions {
  RowParallelLinearOptions(std::int64_t in_features, std::int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(std::int64_t, in_features);
  TORCH_ARG(std::int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
  /// True: the input is this rank's slice. False: it is whole.
  TORCH_ARG(bool, input_is_parallel) = true;
  /// True: each rank gets a part of the sequences, along `sequence_dim`; requires input_is_parallel. False: the whole
  /// output.
  TORCH_ARG(bool, sequence_parallel) = false;
  TORCH_ARG(std::int64_t, sequence_dim) = 1;
  /// Number of consecutive inputs that stay on one rank: the `unit` of the previous layer.
  TORCH_ARG(std::int64_t, unit) = 1;
};

/// y = x W^T + b, where each rank multiplies some inputs: W is sliced along dimension 1. The ranks' products are
/// summed, then the bias, which all ranks have whole, is added. (Megatron-LM; PyTorch: RowwiseParallel)
class RowParallelLinearImpl : public ParallelLayer {
 public:
  RowParallelLinearImpl(std::int64_t in_features, std::int64_t out_features)
      : RowParallelLinearImpl(RowParallelLinearOptions(in_features, out_features)) {}
  explicit RowParallelLinearImpl(const RowParallelLinearOptions& options);

  /// @param input  [..., this rank's inputs], or [..., in_features] without input_is_parallel
  /// @return [..., out_features], the same on all ranks, or this rank's part of the sequences
  /// @throws DataError for an input of another width
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  RowParallelLinearOptions options;
  at::Tensor weight, bias;

 protected:
  void slice(std::string_view axis) override;

 private:
  std::vector<std::int64_t> sizes_;  // sizes of the ranks' inputs
};
TORCH_MODULE(RowParallelLinear);

struct VocabParallelEmbeddingOptions {
  VocabParallelEmbeddingOptions(std::int64_t num_embeddings, std::int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  TORCH_ARG(std::int64_t, num_embeddings);
  TORCH_ARG(std::int64_t, embedding_dim);
  /// Index whose row is initialized with zeros and gets no gradient; negative: counted from the end.
  TORCH_ARG(std::optional<std::int64_t>, padding_idx) = std::nullopt;
  /// True: each rank gets a part of the sequences, along `sequence_dim` of the output.
  TORCH_ARG(bool, sequence_parallel) = false;
  TORCH_ARG(std::int64_t, sequence_dim) = 1;
};

/// An embedding of which each rank has some rows: weight [num_embeddings, embedding_dim], as torch::nn::Embedding. Rows
/// of other ranks are zeros in the sum over ranks. (Megatron-LM; PyTorch: RowwiseParallel of an embedding)
class VocabParallelEmbeddingImpl : public ParallelLayer {
 public:
  VocabParallelEmbeddingImpl(std::int64_t num_embeddings, std::int64_t embedding_dim)
      : VocabParallelEmbeddingImpl(VocabParallelEmbeddingOptions(num_embeddings, embedding_dim)) {}
  explicit VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& options);

  /// @param indices  integers of any shape, the same on all ranks
  /// @return [..., embedding_dim], the same on all ranks, or this rank's part of the sequences
  at::Tensor forward(const at::Tensor& indices);
  void pretty_print(std::ostream& stream) const override;

  VocabParallelEmbeddingOptions options;
  at::Tensor weight;

 protected:
  void slice(std::string_view axis) override;

 private:
  std::int64_t begin_ = 0;
};
TORCH_MODULE(VocabParallelEmbedding);

/// Dropout for slices of a layer and parts of sequences: masks differ between ranks, by RankRNGGuard. For tensors that
/// all ranks have, use torch::nn::Dropout.
class ParallelDropoutImpl : public ParallelLayer {
 public:
  /// @throws ConfigError unless 0 <= p <= 1
  explicit ParallelDropoutImpl(double p = 0.5);
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  double p;

 protected:
  void slice(std::string_view axis) override;
};
TORCH_MODULE(ParallelDropout);

}  // namespace danling::inline v0::parallel
