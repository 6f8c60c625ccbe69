// Cross entropy of logits whose classes are sliced over ranks.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/options/loss.h>
#include <torch/nn/pimpl.h>

#include <danling/parallel/tensor_layers.hpp>

namespace danling::inline v0::parallel {

struct VocabParallelCrossEntropyOptions {
  TORCH_ARG(std::int64_t, ignore_index) = -100;
  TORCH_ARG(double, label_smoothing) = 0;
  TORCH_ARG(torch::nn::CrossEntropyLossOptions::reduction_t, reduction) = torch::kMean;
  /// Number of classes over all ranks; 0: exchanged between the ranks at each call.
  TORCH_ARG(std::int64_t, num_classes) = 0;
};

/// F::cross_entropy of logits of which each rank has a slice of the classes, as ColumnParallelLinear returns them.
/// Combines the maximum and the sums over classes between ranks; no rank has all logits. For narrower logits it
/// computes in float32 and returns float32. Two exchanges of one to three values per target; none in the backward pass.
/// No second derivatives. In a group of one it is F::cross_entropy, with the dtype of the logits and LibTorch's errors.
/// (Megatron-LM: vocab_parallel_cross_entropy; PyTorch: loss_parallel)
///
/// @param logits  this rank's slice of (N, C), (C) or (N, C, d1, ...)
/// @param target  classes among all, the same on all ranks: (N), () or (N, d1, ...)
/// @return the same value on all ranks
/// @throws DataError for other shapes and for probabilities as targets. For a class out of range, the rank with the
///         first or last classes throws LibTorch's error; the others wait until the program aborts the group, as a
///         runner does
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& target, const Group& group,
                                        const VocabParallelCrossEntropyOptions& options = {});

/// The same as a module, for a runner's criterion. Before parallelize() it takes logits of all classes.
class VocabParallelCrossEntropyImpl : public ParallelLayer {
 public:
  explicit VocabParallelCrossEntropyImpl(const VocabParallelCrossEntropyOptions& options = {});
  at::Tensor forward(const at::Tensor& logits, const at::Tensor& target);
  void pretty_print(std::ostream& stream) const override;

  VocabParallelCrossEntropyOptions options;

 protected:
  void slice(std::string_view axis) override;
};
TORCH_MODULE(VocabParallelCrossEntropy);

}  // namespace danling::inline v0::parallel
