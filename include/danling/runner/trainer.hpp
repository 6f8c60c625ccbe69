// Trainer: a runner for programs that compose instead of deriving.
#pragma once

#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

/// Set model, criterion (or Losses), datasets, metrics and optimizer, add callbacks by `add(...)`, then call `train()`.
/// For custom steps, derive from TorchRunner. (t3w: TrainLoop and EvalLoop. Their side effects are callbacks here,
/// which receive a StepEvent in place of a StepReturn.)
class Trainer final : public TorchRunner {
 public:
  template <std::derived_from<RunnerConfig> C>
  explicit Trainer(const C& config) : TorchRunner(config) {}
  /// Closes the run and logs errors; call close() yourself to receive them.
  ~Trainer() override;
};

}  // namespace danling::inline v0
