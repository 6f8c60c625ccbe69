// ROC and precision-recall curves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// Points by falling threshold, from (0, 0); float64. An exact curve begins with threshold 1, which predicts nothing.
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

/// Multiclass with `num_classes`, multilabel with `num_labels`, else binary.
struct CurveOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
  /// Number of evenly spaced thresholds from 0 to 1, at least 2; when absent, one threshold per distinct score.
  std::optional<std::int64_t> thresholds = std::nullopt;
};

/// One curve for binary predictions, else one per class against the rest, or per label; torchmetrics' roc.
/// A rate without positives or negatives is 0. Curves of scores with a nan are nan.
///
/// On a device, an exact curve waits, since its length depends on the data; one with `thresholds` does not.
/// @throws MetricError for invalid options, shapes and labels.
std::vector<RocCurve> roc(const at::Tensor& input, const at::Tensor& target, const CurveOptions& options = {});

/// torchmetrics' precision_recall_curve; otherwise as `roc`. Recall without positives is 1 in an exact curve for binary
/// and multilabel, and nan for multiclass (1 if all targets are class 0). With `thresholds`, recall without positives
/// and precision without predictions are nan.
std::vector<PrecisionRecallCurve> precision_recall_curve(const at::Tensor& input, const at::Tensor& target,
                                                         const CurveOptions& options = {});

struct CurveMetricOptions {
  std::optional<std::int64_t> ignore_index = -100;
  /// As in CurveOptions. Required in streams and for several classes or labels, whose exact curves differ in length.
  std::optional<std::int64_t> thresholds = std::nullopt;
};

// The curves as metrics for containers: float64, [3, points] for binary predictions, else [classes, 3, points]. The
// rows are those of RocCurve or PrecisionRecallCurve; the latter's last threshold is nan. Named "roc" and
// "precision_recall_curve". nan without counted samples. Stores counts with `thresholds`, else predictions.
// @throws MetricError for invalid options.
MetricFunc binary_roc(const CurveMetricOptions& options = {});
MetricFunc multiclass_roc(std::int64_t num_classes, const CurveMetricOptions& options);
MetricFunc multilabel_roc(std::int64_t num_labels, const CurveMetricOptions& options);
MetricFunc binary_precision_recall_curve(const CurveMetricOptions& options = {});
MetricFunc multiclass_precision_recall_curve(std::int64_t num_classes, const CurveMetricOptions& options);
MetricFunc multilabel_precision_recall_curve(std::int64_t num_labels, const CurveMetricOptions& options);

}  // namespace danling::inline v0::metrics
