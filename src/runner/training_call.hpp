// A call that trains: what would pull the floor from under it is refused meanwhile.
#pragma once

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::TrainingCall {
 public:
  explicit TrainingCall(TorchRunnerBase& runner) : runner_(runner) { runner_.training_ = true; }
  ~TrainingCall() { runner_.training_ = false; }
  TrainingCall(const TrainingCall&) = delete;
  TrainingCall& operator=(const TrainingCall&) = delete;

 private:
  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
