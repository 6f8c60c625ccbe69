// Warnings and errors for runs that would otherwise fail silently.
#pragma once

#include <string_view>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Checks {
 public:
  explicit Checks(TorchRunnerBase& runner) : runner_(runner) {}

  /// @throws StateError inside a call that trains
  void not_training(std::string_view operation) const;

  /// @throws ConfigError for --summary, --find_lr or --find_batch_size if nothing has run the tool
  void check_tools_called(std::string_view operation) const;

  // Called when training begins.
  void trainable(const Splits& splits) const;
  /// Collective.
  void same_data(const Splits& splits) const;
  /// Collective. Called when a loop over `split` begins outside train().
  void same_loop(std::string_view operation, std::string_view split) const;
  std::string kinds_of_metrics() const;
  void score_name(const Splits& splits) const;
  /// @throws ConfigError for a metric named as a number of the runner or a key of a log line
  void metric_names(std::string_view operation) const;
  void monitors() const;  ///< of schedules that need a metric
  void log_schedules() const;
  void disk_plan() const;
  /// With virtual ranks. @throws ConfigError for settings that depend on the number of processes
  void shards(std::string_view operation, bool in_loop_of_runner) const;

  // Called where the host reads numbers anyway.
  void numbers(const detail::LoopFrame& frame, const Result& averages);
  void metrics_fed(detail::LoopFrame& frame);
  /// Warns of an average over batches of different sizes, each counted as one.
  void loss_weighted(const detail::LoopFrame& frame);
  void loss_returned(detail::LoopFrame& frame);  ///< by train_step, or other numbers in its place
  void evaluations_of_host() const;              ///< at the end of a loop that the program owns
  void models_updated(std::string_view split);
  void parameters_trained();  ///< at the beginning of a pass

 private:
  void schedules();
  /// Declared names of the numbers in a split's results; empty if `metrics` declares none.
  std::optional<std::vector<std::string>> declared_names(const MetricsBase* metrics) const;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
