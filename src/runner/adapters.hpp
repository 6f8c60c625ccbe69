// Selects the trained parameters of the models: adds LoRA adapters and freezes parameters, before optimizers are built.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Adapters {
 public:
  explicit Adapters(TorchRunnerBase& runner) : runner_(runner) {}

  /// Adds the adapters of `lora`, then freezes the parameters that `optim.freeze` matches: once, before models are
  /// prepared.
  void attach();
  void freeze();
  /// Merges the current adapters into the layers of one model, or of all.
  void update(const std::string& name);
  void update();
  /// The same before an evaluation, which may use averaged weights; training then updates the layers again.
  void use_present() {
    if (runner_.has_adapters_) [[unlikely]] {
      update();
      runner_.stale_adapters_ = true;
    }
  }
  /// Called before a training step.
  void use_trained() {
    if (runner_.stale_adapters_) [[unlikely]] {
      update();
      runner_.stale_adapters_ = false;
    }
  }
  /// Called once optimizers are set: a program may have built one before the adapters.
  /// @throws ConfigError
  void check_optimizers() const;
  /// Builds the optimizer that `spec` describes, over the parameters of a model that `freeze` and adapters leave
  /// trainable.
  static std::shared_ptr<optim::Optimizer> build_optimizer(optim::OptimizerSpec spec, const ModelHandle& model,
                                                           NamedTensors parameters, std::vector<std::string>& warnings);

 private:
  /// The parameters that `lora.modules_to_save` names.
  NamedTensors modules_to_save() const;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
