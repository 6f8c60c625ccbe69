// How well scores rank: the area under the ROC curve, and average precision.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

struct BinaryAurocOptions {
  /// Targets of this value do not count.
  std::optional<std::int64_t> ignore_index = -100;
  /// Counts above so many thresholds, evenly from 0 to 1, at least 2, stand in for the predictions: constant memory,
  /// an approximate value. Exact when absent.
  std::optional<std::int64_t> thresholds = std::nullopt;
  /// The area up to this false positive rate, in (0, 1], standardized so that chance gives 0.5 (McClish, 1989).
  std::optional<double> max_fpr = std::nullopt;
};

struct BinaryRankingOptions {
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> thresholds = std::nullopt;
};

struct MulticlassRankingOptions {
  /// Not micro.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> thresholds = std::nullopt;
};

struct MultilabelRankingOptions {
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> thresholds = std::nullopt;
};

// The area under the ROC curve, torchmetrics' auroc, named "auroc": the share of pairs of a positive and a negative
// that the scores put in order, half for ties. Several classes: each against the rest. Higher is better.
//
// 0 where a class has no positives or no negatives; it enters averages. nan without any data, and where a score is
// nan. A label of which all targets are ignored is nan and left out of averages.
// On the host exact in integers. On a device nothing waits. Metrics of one state share the sort.
// @throws MetricError for options, shapes and labels that do not fit; on a device labels are not checked.
MetricFunc binary_auroc(const BinaryAurocOptions& options = {});
MetricFunc multiclass_auroc(std::int64_t num_classes, const MulticlassRankingOptions& options = {});
MetricFunc multilabel_auroc(std::int64_t num_labels, const MultilabelRankingOptions& options = {});

// Average precision, torchmetrics' average_precision, named "auprc": the mean over positives of the precision at their
// score, which is the area under the steps of the precision-recall curve. The rest is as for AUROC, but a class without
// positives is 0 for binary and multilabel; for multiclass it is nan and left out of averages, or 0 where all targets
// are class 0.
MetricFunc binary_auprc(const BinaryRankingOptions& options = {});
MetricFunc multiclass_auprc(std::int64_t num_classes, const MulticlassRankingOptions& options = {});
MetricFunc multilabel_auprc(std::int64_t num_labels, const MultilabelRankingOptions& options = {});

/// For functions that take predictions of any task: with `num_classes` multiclass, with `num_labels` multilabel, else
/// binary.
struct RankingOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  /// Which dimension of the prediction holds the classes; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
  std::optional<std::int64_t> thresholds = std::nullopt;
  /// Binary AUROC only.
  std::optional<double> max_fpr = std::nullopt;
};

/// Of probabilities or logits and integer targets: a float64 scalar, or [classes] for Average::none.
at::Tensor auroc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});
at::Tensor auprc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});
/// `auprc` by the name that scikit-learn and torchmetrics use.
at::Tensor average_precision(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});

}  // namespace danling::inline v0::metrics
