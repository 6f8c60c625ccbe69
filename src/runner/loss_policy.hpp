// The policy for loss spikes and non-finite losses and gradients: warn, skip, stop, roll back.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

namespace detail {

/// Thrown between two windows, through the loops alone, to restore a checkpoint and continue.
struct RollBack {};

/// A micro-batch of the open window, until all windows are closed.
struct JudgedBatch {
  State batch;
  std::vector<std::int64_t> indices;  ///< empty without a loader
  std::int64_t iteration;
  at::Tensor loss;
};

/// A window that the policy judged to be bad.
struct BadWindow {
  std::string action;  ///< stop or rollback
  std::string key;     ///< of the config
  std::string reason;  ///< expected X, got Y in ...
  double loss;
};

struct LossPolicyState {
  std::vector<JudgedBatch> batches;
  std::int64_t first = 0;  ///< micro_step at which they began
  std::optional<BadWindow> bad;
  std::map<std::string, std::deque<double>> losses;                ///< of the last updates, by model
  std::vector<std::pair<std::int64_t, std::int64_t>> passed_over;  ///< ranges of micro_step that a roll-back leaves out
  std::int64_t rollbacks = 0;
  std::optional<State> initial;  ///< where this training began, until a checkpoint is on disk
  std::int64_t saves = 0;        ///< before it
  bool has_trained = false;      ///< in this process
};

}  // namespace detail

/// Judges each update by the mean loss of its window, over all ranks, and by the flag of its gradients, before the
/// optimizer runs: one device wait per update, and one exchange between ranks.
class TorchRunnerBase::LossPolicy {
 public:
  explicit LossPolicy(TorchRunnerBase& runner) : runner_(runner), state_(*runner.loss_policy_) {}

  static bool judges(const RunnerConfig& config);
  /// Called when training begins. @throws ConfigError for a roll-back in a loop of the program
  void prepare(bool hosted);

  /// Forgets the open window.
  void reset();
  /// For a roll-back before the first checkpoint: keeps the state in host memory. Collective.
  void keep_beginning();
  /// Whether a roll-back leaves this micro-batch out.
  bool passes_over(std::int64_t micro_step) const;
  void begin_micro_batch(const MicroBatch& micro_batch);
  void add_loss(Learner& learner, const at::Tensor& loss, double weight);
  /// @return whether the update is not made
  bool judge(Learner& learner, const at::Tensor& found_inf);
  /// Called where all windows are closed. @throws NonFiniteError or RollBack after a bad one
  void settle();
  /// Restores the last sound checkpoint. Called where the loops have ended.
  void roll_back();
  /// With `ft`, in a new group: roll-backs without a checkpoint return to `point`; null: there is a checkpoint.
  void begin_anew(const State& point);

  State save() const;
  void load(const State* state);

 private:
  void drop_beginning();
  std::optional<std::string> spike_reason(const Learner& learner, double loss);
  bool act(std::string action, const std::string& key, const std::string& reason, const StepPacket& all);
  std::string save_batches() const;
  std::string place() const;

  TorchRunnerBase& runner_;
  detail::LossPolicyState& state_;
};

}  // namespace danling::inline v0
