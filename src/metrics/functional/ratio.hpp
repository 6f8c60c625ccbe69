// Metrics that are a ratio of counts per class or label, and their averages.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

#include <metrics/functional/counts.hpp>

namespace danling::inline v0::metrics::detail {

/// Weights of TN, FP, FN and TP, in this order.
using Weights = std::array<double, 4>;

struct Ratio {
  Weights over = {};
  Weights under = {};
};

struct RatioMetric {
  Ratio ratio;
  /// If set, the value is the mean of both ratios.
  std::optional<Ratio> second = std::nullopt;
  /// The value is one minus the ratio.
  bool complement = false;
};

/// Classes that Average::macro includes.
enum class Present { all, seen, targets };

struct Averaging {
  Average average = Average::micro;
  Present present = Present::all;
  /// A class excluded from macro and micro.
  std::optional<std::int64_t> left_out = std::nullopt;
  /// Value of Average::weighted without weight: nan if true, else 0.
  bool nan_without_weight = false;
  /// Returns a sum over the counted labels: for micro with a ratio whose divisor is the number of counted labels.
  bool exact = false;
};

/// `counts` as of class_sums, [3, classes], or of label_sums, [labels, 2, 2]. 0 / 0 is 0; without any count the value
/// is nan. Returns a number or a sum on the host, a float64 tensor on devices, and for Average::none one tensor of all
/// classes.
MetricValue ratio_on_host(const at::Tensor& counts, const RatioMetric& metric, const Averaging& averaging);
MetricValue ratio_on_device(const at::Tensor& counts, const RatioMetric& metric, const Averaging& averaging);
inline MetricValue ratio_of(const at::Tensor& counts, const RatioMetric& metric, const Averaging& averaging) {
  return counts.is_cpu() ? ratio_on_host(counts, metric, averaging) : ratio_on_device(counts, metric, averaging);
}

/// The share of correct labels times `scale` plus `offset`, as a sum over the counted labels.
MetricValue correct_share(const at::Tensor& right_and_counted, double scale = 1.0, double offset = 0.0);

// The metrics. `exact` if binary and multilabel micro are a share of all counted labels.

MetricFunc binary_ratio(std::string name, const RatioMetric& metric, bool exact, bool higher_is_better,
                        const BinaryOptions& options);
MetricFunc multilabel_ratio(std::string name, const RatioMetric& metric, const Averaging& averaging,
                            bool higher_is_better, std::int64_t num_labels, const MultilabelOptions& options);
MetricFunc multiclass_ratio(std::string name, const RatioMetric& metric, const Averaging& averaging,
                            bool higher_is_better, const ClassRule& rule);
/// correct_share as a metric.
MetricFunc multiclass_share(std::string name, double scale, double offset, bool higher_is_better,
                            const ClassRule& rule);

}  // namespace danling::inline v0::metrics::detail
