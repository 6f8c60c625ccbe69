// Rounds of training splits and evaluations, by epochs or by steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Rounds {
 public:
  Rounds(TorchRunnerBase& runner, const Splits& splits)
      : runner_(runner),
        splits_(splits),
        train_(runner.state_.train),
        loop_(runner.loop_),
        by_steps_(runner.is_step_mode()) {}

  void run();

 private:
  bool is_done() const;
  void log_done() const;
  bool is_unfinished() const;
  void start_loaders();
  bool train();
  bool is_over() const;
  void evaluate(Result& round, bool whole);
  void end_round(bool evaluated);
  void end();
  std::int64_t step_budget(std::size_t remaining_splits, const data::LoaderBase& loader) const;

  TorchRunnerBase& runner_;
  const Splits& splits_;
  RunnerTrainState& train_;
  LoopState& loop_;
  bool by_steps_;
};

}  // namespace danling::inline v0
