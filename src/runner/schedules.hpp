// Schedules of the models in training: their lengths in updates, and steps by epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/optim/schedule_summary.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include <runner/window_lengths.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Schedules {
 public:
  explicit Schedules(const TorchRunnerBase& runner) : runner_(runner) {}

  /// Builds the schedule of one of the models, or of `model` if `name` is empty.
  std::shared_ptr<optim::Scheduler> build(const std::string& name, const optim::SchedulerSpec& spec,
                                          optim::Optimizer& optimizer) const;
  /// @throws ConfigError for `interval: step` with a schedule that needs a metric, a monitor of no split, or a monitor
  /// that no schedule needs
  void check_interval(const optim::SchedulerSpec& spec, const optim::Scheduler& scheduler) const;
  /// Optimizer steps of the run, or of one of its models; empty if unknown.
  std::optional<std::int64_t> length_in_steps(const std::string& name) const;
  std::int64_t window_length(const std::string& name) const;  ///< in micro-batches
  /// From the config: available before optimizers are built.
  detail::WindowLengths window_lengths() const;
  /// Steps the schedules with `interval: epoch` after a round. Those that need a metric wait for evaluations, if these
  /// have an interval. @return a warning for each schedule whose metric `result` lacks: it does not step
  std::vector<std::string> step_epoch(const Result& result, bool evaluated) const;
  /// Steps the schedules whose metric is in `row`, if the program owns the loop.
  void step_evaluation(const Result& row) const;
  /// @throws ConfigError for a schedule by epochs if the program owns the loop
  void check_host_loop() const;
  /// @throws ConfigError for a metric that no evaluation measures during train()
  void check_evaluations() const;
  /// The options of one of the models, or of `model` if `name` is empty.
  optim::SchedulerSpec spec_of(const std::string& name) const;
  /// "val" and "accuracy" of "val.accuracy"; without a split of this run, the score's split and the whole name.
  std::pair<std::string, std::string> parts_of(const std::string& monitor) const;
  std::vector<std::string> measured_splits() const;  ///< empty if the program makes the batches
  std::string monitor_of(const std::string& name) const;
  /// Type of the schedule, with its first, highest and last rate as far as known.
  std::string text(const Learner& learner) const;
  /// The rates of a parameter group over the run; null if they depend on more than the position.
  std::optional<optim::ScheduleSummary> outline(const Learner& learner, std::size_t group) const;
  static std::size_t highest_group(const optim::Scheduler& schedule);

 private:
  std::optional<std::int64_t> length_in_epochs() const;  // empty if unknown
  void check_monitor(const optim::SchedulerSpec& spec, const optim::Scheduler& scheduler) const;
  /// Null unless `result` contains it, for one split.
  const double* find_monitored(const Result& result, const std::string& monitor) const;

  const TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
