// Training or evaluation in the program's loop, begun by train_on_batch or evaluate_on_batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <runner/averages.hpp>
#include <runner/evaluator.hpp>
#include <runner/loop_frame.hpp>
#include <runner/paused_pass.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::HostLoop {
 public:
  struct Evaluation {
    Evaluation(TorchRunnerBase& runner, const std::string& split)
        : paused(runner), averaged(runner), frame(runner, split, std::nullopt) {
      runner.enter(RunnerMode::evaluate, split);
      frame.start();
    }
    PausedPass paused;  // outlives the frame
    Averages::Evaluated averaged;
    detail::LoopFrame frame;
    std::int64_t done = 0;
  };

  explicit HostLoop(TorchRunnerBase& runner) : runner_(runner) {}

  /// Begins training and stores it in `host_` of the runner.
  static void begin(TorchRunnerBase& runner, const std::string& split);
  static void end(TorchRunnerBase& runner);

  bool is_at_last_step() const;
  /// True when further batches are ignored.
  bool is_done() const;
  /// Evaluates whole splits when `evaluate_interval` is due.
  void evaluate_if_due();
  /// Ends the pass: closes its window, runs a due evaluation, appends its row.
  void finish();
  /// Appends a row to the results; saves on the interval, or when the score is the best so far.
  void append(const Result& row);

  std::vector<std::string> splits;
  std::unique_ptr<detail::LoopFrame> frame;  // of training; null if no training is left
  bool ended = false;                        // the pass has ended, and its row is in the results
  std::unique_ptr<Evaluation> evaluation;

 private:
  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
