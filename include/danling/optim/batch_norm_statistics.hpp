// Recomputes the statistics of batch normalization for averaged weights.
#pragma once

#include <functional>
#include <vector>

#include <danling/distributed/group.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::optim {

/// While this object lives, forward passes in training mode accumulate in each batch normalization layer of `modules`
/// the equal average of the batch statistics, instead of the moving one. A layer without a pass keeps its statistics,
/// as do all layers if the object is destroyed before `finish()`. The modules must outlive it.
class BatchNormStatistics {
 public:
  explicit BatchNormStatistics(const std::vector<torch::nn::Module*>& modules);
  BatchNormStatistics(const BatchNormStatistics&) = delete;
  BatchNormStatistics& operator=(const BatchNormStatistics&) = delete;
  ~BatchNormStatistics();

  /// Returns whether a module has a layer that tracks statistics.
  static bool has_any(const torch::nn::Module& module);
  /// Keeps the new statistics, averaged over the batches of all ranks of `group`, which all call it. Waits for the
  /// device.
  void finish(const Group& group = {});

 private:
  struct Layer;
  std::vector<Layer> layers_;
};

/// torch.optim.swa_utils.update_bn: estimates the statistics of `model` over its batches. `forward` runs the model on
/// the next batch and returns false when there is none. Runs without gradients and in training mode, then sets the
/// whole model to the mode that it had itself. Apply the average to the model first.
void update_bn(torch::nn::Module& model, const std::function<bool()>& forward);

}  // namespace danling::inline v0::optim
