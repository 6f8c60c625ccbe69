// Ranking quality of scores: AUROC and average precision.
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
  /// Number of evenly spaced thresholds from 0 to 1, at least 2. Stores counts above each threshold instead of the
  /// predictions: constant memory, approximate value. Exact when absent.
  std::optional<std::int64_t> thresholds = std::nullopt;
  /// Area up to this false positive rate, in (0, 1], standardized so that chance is 0.5 (McClish, 1989).
  std::optional<double> max_fpr = std::nullopt;
};

struct BinaryRankingOptions {
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> thresholds = std::nullopt;
};

struct MulticlassRankingOptions {
  /// Micro is not supported.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> thresholds = std::nullopt;
};

struct MultilabelRankingOptions {
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  std::optional<std::int64_t> thresholds = std::nullopt;
};

// The area under the ROC curve: torchmetrics' auroc, named "auroc". It is the share of pairs of a positive and a
// negative that the scores order correctly; a tie counts half. Several classes: each against the rest. Higher is
// better.
//
// A class without positives or without negatives is 0, which averages include. nan without any data, or if a score is
// nan. A label with only ignored targets is nan and left out of averages. On the host, counts are exact integers.
// Nothing waits for a device. Metrics of one state share the sort.
// @throws MetricError for invalid options, shapes and labels; labels are not checked on a device.
MetricFunc binary_auroc(const BinaryAurocOptions& options = {});
MetricFunc multiclass_auroc(std::int64_t num_classes, const MulticlassRankingOptions& options = {});
MetricFunc multilabel_auroc(std::int64_t num_labels, const MultilabelRankingOptions& options = {});

// Average precision: torchmetrics' average_precision, named "auprc". It is the mean over positives of the precision at
// their score, the area under the steps of the precision-recall curve. Otherwise as AUROC, but a class without
// positives is 0 for binary and multilabel; for multiclass it is nan and left out of averages, or 0 if all targets are
// class 0.
MetricFunc binary_auprc(const BinaryRankingOptions& options = {});
MetricFunc multiclass_auprc(std::int64_t num_classes, const MulticlassRankingOptions& options = {});
MetricFunc multilabel_auprc(std::int64_t num_labels, const MultilabelRankingOptions& options = {});

/// For functions that take predictions of any task: multiclass with `num_classes`, multilabel with `num_labels`, else
/// binary.
struct RankingOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent. If several fit, dimension 1: set it
  /// for [N, L, classes] where L may equal the number of classes.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
  std::optional<std::int64_t> thresholds = std::nullopt;
  /// Binary AUROC only.
  std::optional<double> max_fpr = std::nullopt;
};

/// Takes probabilities or logits and integer targets (binary, multilabel: also floating 0 and 1); returns a float64
/// scalar, or [classes] for Average::none.
at::Tensor auroc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});
at::Tensor auprc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});
/// `auprc` under the name of scikit-learn and torchmetrics.
at::Tensor average_precision(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options = {});

}  // namespace danling::inline v0::metrics
