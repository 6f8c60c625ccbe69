// Schedules of the models in training: their lengths in updates, and their steps by epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/optim/outline.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include "runner/window_lengths.hpp"

namespace danling::inline v0 {

class TorchRunnerBase::Schedules {
 public:
  explicit Schedules(const TorchRunnerBase& runner) : runner_(runner) {}

  /// The schedule of one of the models, or of `model` where `name` is empty.
  std::shared_ptr<optim::Scheduler> build(const std::string& name, const optim::SchedulerSpec& spec,
                                          optim::Optimizer& optimizer) const;
  /// @throws ConfigError for `interval: step` and a schedule that needs a metric, a monitor of no split, or one that
  ///         nothing needs.
  void check_interval(const optim::SchedulerSpec& spec, const optim::Scheduler& scheduler) const;
  /// Optimizer steps of the run, of one of its models; unset: not known.
  std::optional<std::int64_t> length_in_steps(const std::string& name) const;
  std::int64_t window_length(const std::string& name) const;  ///< in micro-batches
  /// From the config: known before optimizers are built.
  detail::WindowLengths window_lengths() const;
  /// Steps the schedules with `interval: epoch` after a round. Those that need a metric wait for evaluations, where
  /// these have an interval. @return a warning for each whose metric `result` lacks: it does not step
  std::vector<std::string> step_epoch(const Result& result, bool evaluated) const;
  /// Steps those that need a metric which is in `row`, where the program owns the loop.
  void step_evaluation(const Result& row) const;
  /// @throws ConfigError for a schedule by epochs where the program owns the loop.
  void check_host_loop() const;
  /// @throws ConfigError for a metric that no evaluation measures while train() trains.
  void check_evaluations() const;
  /// The options of one of the models, or of `model` where `name` is empty.
  optim::SchedulerSpec spec_of(const std::string& name) const;
  /// "val" and "accuracy" of "val.accuracy"; without a split of this run the first is that of the score.
  std::pair<std::string, std::string> parts_of(const std::string& monitor) const;
  std::vector<std::string> measured_splits() const;  ///< empty where the program brings the batches
  std::string monitor_of(const std::string& name) const;
  /// Which schedule it is, with its first, highest and last rate, or as much as is known of them.
  std::string text(const Learner& learner) const;
  /// The rates of a parameter group over the run; null where they depend on more than the position.
  std::optional<optim::ScheduleOutline> outline(const Learner& learner, std::size_t group) const;
  static std::size_t highest_group(const optim::Scheduler& schedule);

 private:
  std::optional<std::int64_t> length_in_epochs() const;  // unset: not known
  void check_monitor(const optim::SchedulerSpec& spec, const optim::Scheduler& scheduler) const;
  /// Null unless it is in `result`, of one split.
  const double* find_monitored(const Result& result, const std::string& monitor) const;

  const TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
