// The models that a run trains: each with its optimizer, schedule and accumulation window.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Learners {
 public:
  explicit Learners(TorchRunnerBase& runner) : runner_(runner) {}

  void build_optimizers(std::vector<std::string>& warnings);
  void build_schedulers();
  /// Anew each time that training begins: the program may have bound others.
  void make();
  void keep_gradient_accumulators();
  Learner& find(std::string_view name, std::string_view operation);

  // ---- windows ------------------------------------------------------------------------------------------------------

  void begin_window(Learner& learner, const OpenStep& step);
  void step(Learner& learner, OpenStep& step);
  /// After a step of several models: those that it did not step.
  void close_open(OpenStep& step);
  /// Where training ends before the data does. `counted`: the last micro-batch made an update.
  void close_last(bool counted);
  void round_micro_step();
  /// After an exception: nothing of a window is left.
  void forget_windows();

  // ---- state --------------------------------------------------------------------------------------------------------

  void save(State& out) const;
  void load(const State& state);

 private:
  Learner make_learner(const std::string& name, std::shared_ptr<optim::Optimizer> optimizer,
                       std::shared_ptr<optim::Scheduler> scheduler) const;
  void close_window(Learner& learner, OpenStep& step);
  void require_gradients(const Learner& learner);

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
