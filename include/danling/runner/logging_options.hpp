// Options of what a run reports, besides its log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/fields.hpp>

namespace danling::inline v0 {

/// `performance`: FLOP/s and utilization. Names as in DanLing 0.4.8, where numbers that are not set are not reported;
/// here those of the model are counted.
struct PerformanceConfig {
  /// Operations of training, forward and backward; of an evaluation a third. Per token where tokens are counted. Unset:
  /// three times those of the first forward pass (see nn::summarize).
  std::optional<double> model_flops_per_sample, model_flops_per_token;
  /// With those that recompute repeats; unset: not reported.
  std::optional<double> hardware_flops_per_sample, hardware_flops_per_token;
  std::optional<double> peak_flops;  ///< of all processes' devices together, per second; unset: no utilization
  void fields(Fields& f);
};

/// `wandb`: see WandbSink.
struct WandbConfig {
  bool enabled = false;
  std::optional<std::string> project, entity, group, name, job_type;
  std::vector<std::string> tags;
  std::optional<std::string> dir, mode;
  void fields(Fields& f);
};

/// `mlflow`: see MlflowSink. Not in DanLing.
struct MlflowConfig {
  bool enabled = false;
  std::optional<std::string> directory, experiment, name;
  void fields(Fields& f);
};

/// `openmetrics`: see OpenMetricsSink. Not in DanLing.
struct OpenMetricsConfig {
  std::optional<std::int64_t> port;
  std::optional<std::string> file;
  void fields(Fields& f);
};

}  // namespace danling::inline v0
