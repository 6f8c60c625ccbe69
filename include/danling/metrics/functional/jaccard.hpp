// Intersection over union of predicted and target labels.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

// One-shot functions preprocess their input for the task and return float64 on its device: a scalar, or for
// Average::none one value per class or label. Without counted samples they return nan. Nothing waits for a device.
// @throws MetricError as preprocess_classification, and for invalid options.

/// TP / (TP + FP + FN), with `top_k` 1 only. Named "jaccard".
///
/// 0 / 0 is 0. Average::macro is over the classes that occur as a target or a prediction, or over all labels of
/// multilabel data. Macro and micro exclude the class `ignore_index`. The weighted average without positives is nan.
MetricFunc binary_jaccard_index(const BinaryOptions& options = {});
MetricFunc multiclass_jaccard_index(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_jaccard_index(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor jaccard_index(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

/// The same metric, named "iou".
MetricFunc binary_iou(const BinaryOptions& options = {});
MetricFunc multiclass_iou(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_iou(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor iou(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

}  // namespace danling::inline v0::metrics
