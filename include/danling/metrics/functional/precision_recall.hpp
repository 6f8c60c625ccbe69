// Precision, recall and specificity.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

// One-shot functions preprocess their input for the task and return float64 on its device: a scalar, or for
// Average::none one value per class or label. Without counted samples they return nan. Nothing waits for a device.
// @throws MetricError as preprocess_classification, and for invalid options.

// 0 / 0 is 0. Average::macro is over the classes that occur as a target or a prediction (precision and recall with
// top_k > 1: as a target), or over all labels of multilabel data. A target among the `top_k` highest scores counts as
// predicted; otherwise the highest score is the prediction.

/// True positives over all predicted. Named "precision". In a stream exact over batches for multiclass micro.
MetricFunc binary_precision(const BinaryOptions& options = {});
MetricFunc multiclass_precision(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_precision(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor precision(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

/// True positives over all targets. Named "recall". In a stream exact over batches for multiclass micro and weighted.
MetricFunc binary_recall(const BinaryOptions& options = {});
MetricFunc multiclass_recall(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_recall(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor recall(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

/// True negatives over all that are not targets. Named "specificity". In a stream exact over batches for multiclass
/// micro.
MetricFunc binary_specificity(const BinaryOptions& options = {});
MetricFunc multiclass_specificity(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_specificity(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor specificity(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

}  // namespace danling::inline v0::metrics
