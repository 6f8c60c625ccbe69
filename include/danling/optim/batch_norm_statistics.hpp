// Estimates the statistics of batch normalization anew, for averaged weights.
#pragma once

#include <functional>
#include <vector>

#include <danling/distributed/group.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::optim {

/// While it lives, forward passes in training mode give the layers of batch normalization in `modules` the equal
/// average of their batches' statistics, in place of the moving one. Without a pass, or when destroyed before
/// `finish()`, a layer keeps its statistics. The modules outlive it.
class BatchNormStatistics {
 public:
  explicit BatchNormStatistics(const std::vector<torch::nn::Module*>& modules);
  BatchNormStatistics(const BatchNormStatistics&) = delete;
  BatchNormStatistics& operator=(const BatchNormStatistics&) = delete;
  ~BatchNormStatistics();

  /// Whether a module has a layer that tracks statistics.
  static bool has_any(const torch::nn::Module& module);
  /// Keeps the new statistics, averaged over the batches of all ranks. Waits for the device.
  void finish(const Group& group = {});

 private:
  struct Layer;
  std::vector<Layer> layers_;
};

/// torch.optim.swa_utils.update_bn: estimates the statistics of `model` over the batches of `forward`, which runs the
/// model on the next one and returns false when there is none. Without gradients and in training mode, which it
/// restores. Apply the average to the model first.
void update_bn(torch::nn::Module& model, const std::function<bool()>& forward);

}  // namespace danling::inline v0::optim
