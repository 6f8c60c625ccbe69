// F1 and F-beta: harmonic means of precision and recall.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

// One-shot functions preprocess their input for the task and return float64 on its device: a scalar, or for
// Average::none one value per class or label. Without counted samples they return nan. Nothing waits for a device.
// @throws MetricError as preprocess_classification, and for invalid options.

// 0 / 0 is 0. Average::macro is over the classes that occur as a target or a prediction, or over all labels of
// multilabel data. In a stream exact over batches for multiclass micro, which is the accuracy.

/// 2 TP / (2 TP + FN + FP). Named "f1".
MetricFunc binary_f1_score(const BinaryOptions& options = {});
MetricFunc multiclass_f1_score(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_f1_score(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor f1_score(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});
/// DanLing's alias of binary_f1_score.
inline MetricFunc binary_f1(const BinaryOptions& options = {}) { return binary_f1_score(options); }

/// (1 + beta²) TP / ((1 + beta²) TP + beta² FN + FP) with `beta` above 0: recall has `beta` times the weight of
/// precision. Named "fbeta".
MetricFunc binary_fbeta_score(double beta = 1.0, const BinaryOptions& options = {});
MetricFunc multiclass_fbeta_score(std::int64_t num_classes, double beta = 1.0, const MulticlassOptions& options = {});
MetricFunc multilabel_fbeta_score(std::int64_t num_labels, double beta = 1.0, const MultilabelOptions& options = {});
at::Tensor fbeta_score(const at::Tensor& input, const at::Tensor& target, double beta,
                       const ClassificationOptions& options = {});
/// DanLing's alias of binary_fbeta_score.
inline MetricFunc binary_fbeta(double beta = 1.0, const BinaryOptions& options = {}) {
  return binary_fbeta_score(beta, options);
}

}  // namespace danling::inline v0::metrics
