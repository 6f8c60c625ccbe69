// MetricsSpec: metrics by name, from a program, files and the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include <danling/core/text_traits.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0 {

class Fields;

template <>
struct TextTraits<at::Device> {
  static constexpr std::string_view expected = "a device such as cpu or cuda:0";
  static std::string format(const at::Device& device);
  static std::optional<at::Device> parse(const std::string& name);
};

namespace metrics {

/// The section `metrics` of a config: `{type: multiclass, num_classes: 10, metrics: [acc, auroc]}`. In a runner it
/// replaces the metrics that the program sets. Unset options keep the defaults of the type; an option that the type or
/// all listed metrics ignore is an error. Not in DanLing.
struct MetricsSpec {
  /// binary, multiclass, multilabel, regression, or a type that the program registered; no metrics when unset.
  std::optional<std::string> type = std::nullopt;
  std::optional<std::int64_t> num_classes = std::nullopt;
  /// Also accepted as the number of classes or outputs, as in DanLing.
  std::optional<std::int64_t> num_labels = std::nullopt;
  std::optional<std::int64_t> num_outputs = std::nullopt;
  Mode mode = Mode::global;
  std::optional<Average> average = std::nullopt;
  /// Metrics with a `top_k` are added once for each: `acc` for 1, `acc5` for 5 (`f1_5` for names that end in a digit).
  std::optional<std::vector<std::int64_t>> top_k = std::nullopt;
  std::optional<double> threshold = std::nullopt;
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
  /// For fbeta; 1 when absent.
  std::optional<double> beta = std::nullopt;
  /// For auroc, auprc, roc and precision_recall_curve; exact when absent.
  std::optional<std::int64_t> thresholds = std::nullopt;
  std::optional<bool> ignore_nan = std::nullopt;
  std::optional<at::Device> device = std::nullopt;
  /// Names of metrics; when empty, the defaults of the type.
  std::vector<std::string> metrics = {};

  void fields(Fields& f);
};

}  // namespace metrics

}  // namespace danling::inline v0
