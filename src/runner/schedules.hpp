// Schedules of the models in training: their lengths in updates, and their steps by epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <danling/runner/torch_runner_base.hpp>

#include "runner/window_lengths.hpp"

namespace danling::inline v0 {

class TorchRunnerBase::Schedules {
 public:
  explicit Schedules(const TorchRunnerBase& runner) : runner_(runner) {}

  /// The schedule of one of the models, or of `model` where `name` is empty.
  std::shared_ptr<optim::Scheduler> build(const std::string& name, const optim::SchedulerSpec& spec,
                                          optim::Optimizer& optimizer) const;
  /// @throws ConfigError for `interval: step` and a schedule that needs a metric.
  static void check_interval(const optim::SchedulerSpec& spec, const optim::Scheduler& scheduler);
  /// Optimizer steps of the run, of one of its models; unset: not known.
  std::optional<std::int64_t> length_in_steps(const std::string& name) const;
  std::int64_t window_length(const std::string& name) const;  ///< in micro-batches
  /// From the config: known before optimizers are built.
  detail::WindowLengths window_lengths() const;
  /// Steps the schedules with `interval: epoch`. @throws ConfigError where `result` lacks the monitored metric
  void step_epoch(const Result& result) const;

 private:
  std::optional<std::int64_t> length_in_epochs() const;  // unset: not known
  double monitored(const Result& result, const std::string& name) const;

  const TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
