// Pause of a training pass for an evaluation.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// Saves meters, metrics, losses and generators of the training pass in progress, if any; the destructor restores them.
/// A checkpoint saved during the pause holds those of the pass.
class TorchRunnerBase::Internals::PausedPass {
 public:
  explicit PausedPass(TorchRunnerBase& runner);
  ~PausedPass();
  PausedPass(const PausedPass&) = delete;
  PausedPass& operator=(const PausedPass&) = delete;

 private:
  TorchRunnerBase& runner_;
  bool active_;
};

}  // namespace danling::inline v0
