// Intersection over union of predicted and target labels.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

// One-shot functions preprocess their input as the task needs it and give float64 on its device: a scalar, or one value
// per class or label for Average::none. Where nothing counts, values are nan. On a device nothing waits.
// @throws MetricError as preprocess_classification, and for options that do not fit.

/// TP / (TP + FP + FN), for `top_k` 1 only. As `jaccard`.
///
/// A ratio over nothing is 0. Average::macro is over the classes that are a target or predicted, and over all labels of
/// multilabel data. A class that is the `ignore_index` takes no part in macro and micro. Weighted by no positives: nan.
MetricFunc binary_jaccard_index(const BinaryOptions& options = {});
MetricFunc multiclass_jaccard_index(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_jaccard_index(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor jaccard_index(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

/// The same as `iou`.
MetricFunc binary_iou(const BinaryOptions& options = {});
MetricFunc multiclass_iou(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_iou(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor iou(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

}  // namespace danling::inline v0::metrics
