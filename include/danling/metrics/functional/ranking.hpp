// Ranking quality of scores: the area under the ROC curve, and average precision.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

struct BinaryAurocOptions {
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
  /// Number of thresholds, evenly from 0 to 1, at least 2: stores counts above each and not the predictions, in
  /// constant memory,
  /// for an approximate value. Exact when absent.
  std::optional<std::int64_t> thresholds = std::nullopt;
  /// The area up to this false positive rate, in (0, 1], standardized so that chance is 0.5 (McClish, 1989).
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
// that the scores order correctly, half for ties. Several classes: each against the rest. Higher is better.
//
// 0 for a class without positives or without negatives; averages include it. nan without any data, and if a score is
// nan. A label with only ignored targets is nan and excluded from averages.
// Exact in integers on the host. Nothing waits for a device. Metrics of one state share the sort.
// @throws MetricError for invalid options, shapes and labels; labels are not checked on a device.
MetricFunc binary_auroc(const BinaryAurocOptions& options = {});
MetricFunc multiclass_auroc(std::int64_t num_classes, const MulticlassRankingOptions& options = {});
MetricFunc multilabel_auroc(std::int64_t num_labels, const MultilabelRankingOptions& options = {});

// Average precision, torchmetrics' average_precision, named "auprc": the mean over positives of the precision at their
// score, which is the area under the steps of the precision-recall curve. Otherwise as AUROC, but a class without
// positives is 0 for binary and multilabel; for multiclass it is nan and excluded from averages, or 0 if all targets
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
  /// Dimension of the classes in the prediction; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
  std::optional<std::int64_t> thresholds = std::nullopt;
  /// Binary AUROC only.
  std::optional<double> max_fpr = std::nullopt;
};

/// Takes probabilities or logits and integer targets; returns a float64 scalar, or [classes] for Average::none.
at::Tensor auroc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});
at::Tensor auprc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});
/// `auprc` under its name in scikit-learn and torchmetrics.
at::Tensor average_precision(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});

}  // namespace danling::inline v0::metrics
