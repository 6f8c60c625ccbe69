// Builds metrics from a configuration: tasks and metrics by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/registry.hpp>
#include <danling/metrics/factory.hpp>
#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/metrics.hpp>
#include <danling/metrics/options.hpp>
#include <danling/metrics/spec.hpp>

namespace danling::inline v0::metrics {

/// Options for a factory of named metrics. Records reads: a set option that no factory reads is an error.
class MetricFuncOptions {
 public:
  MetricFuncOptions(const MetricsSpec& spec, std::int64_t size) : spec_(&spec), size_(size) {}

  /// Classes, labels or outputs.
  std::int64_t size() const { return size_; }
  std::optional<std::int64_t> ignore_index() const { return spec_->ignore_index; }
  /// Macro when unset.
  Average average();
  /// Macro for `micro`, for metrics without a micro average; `average: micro` is then used only if another metric reads
  /// it.
  Average average_except_micro();
  /// {1} when unset.
  std::vector<std::int64_t> top_k();
  double threshold();
  double beta();
  std::optional<std::int64_t> thresholds();

  /// @throws ConfigError naming an option that is set but was not read.
  void expect_all_used() const;

 private:
  const MetricsSpec* spec_;
  std::int64_t size_;
  bool average_ = false;
  bool top_k_ = false;
  bool threshold_ = false;
  bool beta_ = false;
  bool thresholds_ = false;
};

/// Metrics of a task by name: the metrics' names and DanLing's aliases (`acc`, `accuracy`, `f1`, …). Programs add
/// metrics:
///
///     metrics::metric_func_registry(Task::regression).add("bias", [](MetricFuncOptions&) { return std::vector{bias()};
///     });
using MetricFuncRegistry = Registry<std::vector<MetricFunc>(MetricFuncOptions& options)>;
MetricFuncRegistry& metric_func_registry(Task task);
using NamedOptions [[deprecated("use MetricFuncOptions")]] = MetricFuncOptions;
[[deprecated("use metric_func_registry")]] inline MetricFuncRegistry& by_name(Task task) {
  return metric_func_registry(task);
}

/// Factories by `type` (DanLing's METRICS).
using MetricsRegistry = Registry<std::shared_ptr<Metrics>(const MetricsSpec&)>;
MetricsRegistry& metrics_registry();

/// Builds the metrics that `spec` describes; null without a type, when no other option may be set.
/// @throws ConfigError for unknown names, for numbers that are missing, not positive or contradictory, and for unused
/// options; MetricError as the factories.
std::shared_ptr<Metrics> build_metrics(const MetricsSpec& spec);
[[deprecated("use build_metrics")]] inline std::shared_ptr<Metrics> build(const MetricsSpec& spec) {
  return build_metrics(spec);
}

}  // namespace danling::inline v0::metrics
