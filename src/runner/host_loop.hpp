// What train_on_batch and evaluate_on_batch have begun.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runner/loop_frame.hpp"
#include "runner/paused_pass.hpp"

namespace danling::inline v0 {

struct TorchRunnerBase::HostLoop {
  struct Evaluation {
    Evaluation(TorchRunnerBase& runner, const std::string& split) : paused(runner), frame(runner, split, std::nullopt) {
      runner.enter(RunnerMode::evaluate, split);
      frame.start();
    }
    PausedPass paused;  // outlives the frame
    detail::LoopFrame frame;
    std::int64_t done = 0;
  };

  std::vector<std::string> splits;
  std::unique_ptr<detail::LoopFrame> frame;  // of training; null where it has nothing to do
  bool counted = false;                      // the last batch made an update
  bool ended = false;                        // the pass is over, and its row is in the results
  std::unique_ptr<Evaluation> evaluation;
};

}  // namespace danling::inline v0
