// Options of performance numbers and of sinks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/fields.hpp>

namespace danling::inline v0 {

/// `performance`: FLOP/s and utilization. Names as in DanLing 0.4.8, which reports only numbers that are set; here
/// unset FLOPs of the model are counted.
struct PerformanceConfig {
  /// Model FLOPs of a training step, forward and backward; an evaluation counts a third. Per token if tokens are
  /// counted. Unset: three times the FLOPs of the first forward pass (see nn::summarize).
  std::optional<double> model_flops_per_sample, model_flops_per_token;
  /// Model FLOPs and those that activation recompute repeats; unset: not reported.
  std::optional<double> hardware_flops_per_sample, hardware_flops_per_token;
  std::optional<double> peak_flops;  ///< per second, of the devices of all processes together; unset: no utilization
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

/// `mlflow`: see MlflowSink. DanLing 0.4.8 names the keys differently: docs/moving/danling.md.
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
