// MetricsConfig: metrics by name, from files and the command line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/config/fields.hpp>

namespace danling::inline v0 {

class Metrics;

/// `metrics`, of a RunnerConfig or of any config: `{type: multiclass, num_classes: 10, metrics: [acc, auroc]}`. In a
/// runner they stand in for those that the program sets. Without `type` none are built, and other keys are refused. Not
/// in DanLing.
struct MetricsConfig : Section {
  std::optional<std::string> type;
  std::optional<std::int64_t> num_classes, num_labels, num_outputs;
  std::string mode = "global";
  std::vector<std::string> metrics;  ///< by name; empty: the defaults of the type
  std::optional<std::string> average;
  std::optional<std::vector<std::int64_t>> top_k;
  std::optional<double> threshold;
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> class_dim;
  std::string scores = "detect";
  std::optional<double> beta;
  std::optional<std::int64_t> thresholds;
  std::optional<bool> ignore_nan;
  std::optional<std::string> device;
  void fields(Fields& f) override;
};

namespace metrics {

/// The metrics that `config` describes; null without a `type`.
/// @throws ConfigError for unknown names, with the nearest known one, and for settings that do not fit.
std::shared_ptr<Metrics> build(const MetricsConfig& config);

}  // namespace metrics

}  // namespace danling::inline v0
