// RunnerPlan: the length of a run, its intervals, and the splits for training and evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/runner/identity.hpp>

namespace danling::inline v0 {

/// Derived from the config and, once the loaders are built, from the length of the data.
class RunnerPlan : public RunnerIdentity {
 public:
  std::optional<std::int64_t> epochs() const;
  /// Optimizer updates of the whole run: configured, or derived from the epochs and the length of the data.
  std::optional<std::int64_t> steps() const;
  bool is_step_mode() const { return !epochs(); }
  std::int64_t accum_steps() const;
  /// Epochs (epoch mode) or updates (step mode) between saves; 0: never.
  std::int64_t checkpoint_interval() const;
  /// Micro-batches (epoch mode) or updates (step mode) between log lines; 0: never.
  std::int64_t log_interval() const;

  /// Number of a result in log lines and files: the epoch, counted from 1, or the step.
  std::int64_t round_number(std::int64_t index) const { return is_step_mode() ? index : index + 1; }
  std::string round_name(std::int64_t index) const;  ///< `epoch 28` or `step 1200`

  /// Configured or inferred split names, sorted.
  std::vector<std::string> train_splits() const;
  std::vector<std::string> evaluate_splits() const;
  /// Splits that are evaluated once, after training, and never select the best checkpoint.
  std::vector<std::string> test_splits() const;
  /// The split that selects the best checkpoint: the configured one, or else the first evaluation split that begins
  /// with "val", "Val" or "VAL", or else the first. Empty if no split is evaluated.
  std::optional<std::string> score_split() const;
  /// Batches in an epoch of a split; empty if it has no length. Available once the loaders are built.
  virtual std::optional<std::int64_t> split_length(std::string_view split) const = 0;

 protected:
  using RunnerIdentity::RunnerIdentity;
  ~RunnerPlan() = default;

  virtual std::optional<std::int64_t> steps_per_epoch() const = 0;
  struct SplitInfo {
    std::string name;
    bool train;  ///< the dataset declares that it is for training
  };
  virtual std::vector<SplitInfo> splits() const = 0;

  /// @throws ConfigError for a name in the config that no dataset has
  void check_split_names() const;
  /// @throws ConfigError for a training split without a batch
  void check_lengths() const;
};

}  // namespace danling::inline v0
