// SyncBatchNorm: batch normalization with statistics over the batches of all ranks.
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
/// torch.nn.SyncBatchNorm. Exact for batches of different sizes, including empty ones. In evaluation, and in a group of
/// one process, it is torch's BatchNorm; parameters and buffers have the same names, so checkpoints are compatible.
///
/// In training all ranks of the group must call forward and backward equally often, in the same order of layers; inputs
/// require gradients on all ranks or on none. `stack: ddp` sets the group of a model's layers: a rank whose pass has
/// ended then joins without a batch, and passes outside training steps (`swa.update_bn`) use each rank's batches only.
///
/// Statistics are float32 for narrower inputs, otherwise of the input's dtype, and combined in float64 in rank order:
/// the same bits on all ranks. A forward and a backward pass each send 16 bytes per channel; on a device both wait for
/// it. No second derivatives.
///
/// It derives from BatchNorm1d for code that finds batch normalization by type, such as optim::update_bn.
class SyncBatchNormImpl : public torch::nn::BatchNorm1dImpl {
 public:
  /// Sends the bytes of this rank and returns those of all ranks, in rank order; empty for a rank without a batch. An
  /// empty list means that this rank normalizes its batch alone.
  using Exchange = std::function<std::vector<std::string>(std::string_view share)>;

  /// `SyncBatchNorm(64)`, or with options: `SyncBatchNorm(SyncBatchNormOptions(64).momentum(std::nullopt))`.
  explicit SyncBatchNormImpl(const SyncBatchNormOptions& options, Group group = {});

  const Group& group() const { return group_; }
  /// Sets the ranks whose statistics are combined; a group of one normalizes its batch alone. No communication.
  void set_group(Group group);
  /// `exchange` replaces the group's all_gather, for loops in which ranks may be at different positions.
  void set_group(Group group, Exchange exchange);

  /// @param input  (N, C, ...), floating; N may be 0 if other ranks have samples
  /// @throws DataError on all ranks when they have fewer than two values per channel together.
  at::Tensor forward(const at::Tensor& input);
  /// Updates the running statistics on a rank without a batch, from the result of `exchange` on the other ranks.
  void join_exchange(const std::vector<std::string>& shares);

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
