// A training pass that something evaluates in the middle of.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// While it lives, meters, metrics, losses and generators are free for others; then the training pass in progress, if
/// there is one, has its own back. A checkpoint saved meanwhile holds those of the pass.
class TorchRunnerBase::PausedPass {
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
