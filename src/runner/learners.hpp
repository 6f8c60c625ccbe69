// The models in training: each with its optimizer, schedule and accumulation window.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Learners {
 public:
  explicit Learners(TorchRunnerBase& runner) : runner_(runner) {}

  void build_optimizers(std::vector<std::string>& warnings);
  void build_schedulers(std::vector<std::string>& warnings);
  /// Builds a loss scale if the config has one and the program has set none.
  void build_scaler(std::shared_ptr<optim::GradScaler>& scaler) const;
  /// Rebuilds the learners each time training begins, since the program may have set other optimizers.
  void make();
  void keep_gradient_accumulators();

  // ---- state --------------------------------------------------------------------------------------------------------

  void save(State& out) const;
  void load(const State& state);
  void load_weights(const State& state);  ///< in the layout of model_state_dict()

 private:
  Learner make_learner(const std::string& name, std::shared_ptr<optim::Optimizer> optimizer,
                       std::shared_ptr<optim::Scheduler> scheduler) const;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
