// SyncBatchNorm: batch normalization with the statistics of all ranks' batches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::nn {

using SyncBatchNormOptions = torch::nn::BatchNormOptions;

/// Batch normalization of (N, C, ...), in training with mean and variance over the batches of all ranks, as
/// torch.nn.SyncBatchNorm. Exact for batches of different sizes, empty ones too. In evaluation, and with a group of one
/// process, it is torch's BatchNorm, with the same names of parameters and buffers: their checkpoints fit.
///
/// In training all ranks of the group call forward and backward equally often, in the same order of layers. `stack:
/// ddp` sets the group of a model's layers; there a rank that has ended its pass takes part without a batch, and passes
/// outside of training steps (`swa.update_bn`) use each rank's batches alone.
///
/// Statistics are float32 for narrower inputs, else of the input's dtype, and combined in float64 in the order of
/// ranks: the same bits on all ranks. A forward and a backward pass each send 16 bytes a channel; on a device both wait
/// for it. No second derivatives.
///
/// It is a BatchNorm1d for code that finds batch normalization by its type, such as optim::update_bn.
class SyncBatchNormImpl : public torch::nn::BatchNorm1dImpl {
 public:
  /// Sends the bytes of this rank and returns those of all, in their order. Those of a rank without a batch are empty;
  /// an empty list means that this rank normalizes its batch alone.
  using Exchange = std::function<std::vector<std::string>(std::string_view share)>;

  /// `SyncBatchNorm(64)`, or with options: `SyncBatchNorm(SyncBatchNormOptions(64).momentum(std::nullopt))`.
  explicit SyncBatchNormImpl(const SyncBatchNormOptions& options, Group group = {});

  const Group& group() const { return group_; }
  void set_group(Group group);
  /// With an `exchange` in place of the group's all_gather, for loops in which ranks may be at different places.
  void set_group(Group group, Exchange exchange);

  /// @param input  (N, C, ...), floating; N may be 0 where other ranks have samples
  /// @throws DataError on all ranks when they have fewer than two values per channel together.
  at::Tensor forward(const at::Tensor& input);
  /// Updates the running statistics on a rank without a batch, from what `exchange` returned to the others.
  void follow(const std::vector<std::string>& shares);

  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  struct Statistics;
  void update_running(const Statistics& all);

  Group group_;
  Exchange exchange_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace danling::inline v0::nn
