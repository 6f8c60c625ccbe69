// ROC and precision-recall curves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// Points by falling threshold, from (0, 0); float64. The first threshold of an exact curve is 1 and means "none".
struct RocCurve {
  at::Tensor fpr;
  at::Tensor tpr;
  at::Tensor thresholds;
};

/// Points by rising threshold, then (1, 0), which has no threshold; float64.
struct PrecisionRecallCurve {
  at::Tensor precision;
  at::Tensor recall;
  at::Tensor thresholds;
};

/// With `num_classes` multiclass, with `num_labels` multilabel, else binary.
struct CurveOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
  /// Number of thresholds, evenly from 0 to 1, at least 2; one per distinct score when absent.
  std::optional<std::int64_t> thresholds = std::nullopt;
};

/// One curve for binary predictions, else one per class against the rest, or per label; torchmetrics' roc.
/// A rate without positives or negatives is 0. Curves of scores with a nan are nan.
///
/// On a device, an exact curve waits (its length depends on the data), one with `thresholds` does not.
/// @throws MetricError for invalid options, shapes and labels.
std::vector<RocCurve> roc(const at::Tensor& input, const at::Tensor& target, const CurveOptions& options = {});

/// The same of precision and recall; torchmetrics' precision_recall_curve. Recall without positives is 1 in an exact
/// curve for binary and multilabel, and nan for multiclass (1 where all targets are class 0); with `thresholds` it is
/// nan, as is precision without predictions.
std::vector<PrecisionRecallCurve> precision_recall_curve(const at::Tensor& input, const at::Tensor& target,
                                                         const CurveOptions& options = {});

struct CurveMetricOptions {
  std::optional<std::int64_t> ignore_index = -100;
  /// As in CurveOptions. Required for several classes or labels, whose exact curves differ in length, and for streams.
  std::optional<std::int64_t> thresholds = std::nullopt;
};

// The same as metrics of containers: float64, [3, points] for binary predictions, else [classes, 3, points]. The rows
// are those of RocCurve, or of PrecisionRecallCurve with a nan as the threshold of its last point. As `roc` and
// `precision_recall_curve`. nan without counted samples. Stores counts with thresholds, else predictions.
// @throws MetricError for invalid options.
MetricFunc binary_roc(const CurveMetricOptions& options = {});
MetricFunc multiclass_roc(std::int64_t num_classes, const CurveMetricOptions& options);
MetricFunc multilabel_roc(std::int64_t num_labels, const CurveMetricOptions& options);
MetricFunc binary_precision_recall_curve(const CurveMetricOptions& options = {});
MetricFunc multiclass_precision_recall_curve(std::int64_t num_classes, const CurveMetricOptions& options);
MetricFunc multilabel_precision_recall_curve(std::int64_t num_labels, const CurveMetricOptions& options);

}  // namespace danling::inline v0::metrics
