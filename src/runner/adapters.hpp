// What trains of the models: their adapters and frozen parameters, before optimizers are built.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Adapters {
 public:
  explicit Adapters(TorchRunnerBase& runner) : runner_(runner) {}

  /// Freezes what `optim.freeze` matches, once, before the models are prepared.
  void freeze();
  /// The optimizer that `spec` describes, over the parameters of a model that `freeze` and adapters leave to train.
  static std::shared_ptr<optim::Optimizer> build_optimizer(optim::OptimizerSpec spec, const ModelHandle& model,
                                                           NamedTensors parameters, std::vector<std::string>& warnings);

 private:
  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
