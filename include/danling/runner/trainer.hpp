// Trainer: a runner for programs that compose instead of deriving.
#pragma once

#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

/// Set the parts, add callbacks, train: model, criterion (or Losses), datasets, metrics, optimizer, `add(...)`,
/// `train()`. For custom steps, derive from TorchRunner. (t3w: TrainLoop, EvalLoop and their side effects, which are
/// callbacks here, and StepReturn, which is StepOutput.)
class Trainer final : public TorchRunner {
 public:
  template <std::derived_from<RunnerConfig> C>
  explicit Trainer(const C& config) : TorchRunner(config) {}
  /// Closes the run and logs errors; call close() yourself to receive them.
  ~Trainer() override;
};

}  // namespace danling::inline v0
