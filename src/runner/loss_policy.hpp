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

/// Thrown between two windows to restore a checkpoint and continue; only the loops catch it.
struct RollBack {};

/// A micro-batch of the open window, stored until all windows are closed.
struct WindowBatch {
  State batch;
  std::vector<std::int64_t> indices;  ///< empty without a loader
  std::int64_t iteration;
  at::Tensor loss;
};

/// A window that violates the policy.
struct BadWindow {
  std::string action;  ///< stop or rollback
  std::string key;     ///< key of the config
  std::string reason;  ///< expected X, got Y in ...
  double loss;
};

struct LossPolicyState {
  std::vector<WindowBatch> batches;
  std::int64_t first = 0;  ///< micro_step at the start of the stored micro-batches
  std::optional<BadWindow> bad;
  std::map<std::string, std::deque<double>> losses;                ///< of the last updates, by model
  std::vector<std::pair<std::int64_t, std::int64_t>> passed_over;  ///< ranges of micro_step that a roll-back skips
  std::int64_t rollbacks = 0;
  std::optional<State> initial;  ///< state at the start of training, until a checkpoint is on disk
  std::int64_t saves = 0;        ///< number of saves before training
  bool has_trained = false;      ///< in this process
};

}  // namespace detail

/// Checks each update by the mean loss of its window, over all ranks, and by the flag of its gradients, before the
/// optimizer runs: one device synchronization and one exchange between ranks per update.
class TorchRunnerBase::Internals::LossPolicy {
 public:
  explicit LossPolicy(TorchRunnerBase& runner) : runner_(runner), state_(*runner.loss_policy_) {}

  static bool judges(const RunnerConfig& config);
  /// Called when training begins. @throws ConfigError for a roll-back in a loop of the program
  void prepare(bool hosted);

  /// Drops the micro-batches of the open window.
  void reset();
  /// Stores the state in host memory, for a roll-back before the first checkpoint. Collective.
  void keep_beginning();
  /// True when a roll-back skips this micro-batch.
  bool passes_over(std::int64_t micro_step) const;
  void begin_micro_batch(const MicroBatch& micro_batch);
  void add_loss(Learner& learner, const at::Tensor& loss, double weight);
  /// @return true if the update is skipped
  bool judge(Learner& learner, const at::Tensor& found_inf);
  /// Called where all windows are closed. @throws NonFiniteError or RollBack after a violation
  void settle();
  /// Restores the last sound checkpoint. Called after the loops have ended.
  void roll_back();
  /// With `ft`, in a new group: roll-backs without a checkpoint return to `point`; null if there is a checkpoint.
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
