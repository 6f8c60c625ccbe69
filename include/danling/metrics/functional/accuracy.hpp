// The share of correct, or of wrong, decisions.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

// One-shot functions preprocess their input for the task and return float64 on its device: a scalar, or for
// Average::none one value per class or label. Without counted samples they return nan. Nothing waits for a device.
// @throws MetricError as preprocess_classification, and for invalid options.

/// The share of targets that were predicted correctly; named "acc". In a stream exact over batches for binary, micro,
/// and weighted multiclass, which all weigh by counted labels.
///
/// Multiclass: the recall of each class. Average::macro is over the classes that occur as a target or a prediction
/// (with top_k > 1: as a target). Of equal scores the first is predicted; nan ranks above all numbers. Multilabel: for
/// each label, the share of correct decisions, 0 if none counts.
MetricFunc binary_accuracy(const BinaryOptions& options = {});
MetricFunc multiclass_accuracy(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_accuracy(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor accuracy(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

/// The mean of recall and specificity; multiclass: the mean recall of the classes, with Average::macro and `top_k` 1
/// only. Named "balanced_accuracy".
MetricFunc binary_balanced_accuracy(const BinaryOptions& options = {});
MetricFunc multiclass_balanced_accuracy(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_balanced_accuracy(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor balanced_accuracy(const at::Tensor& input, const at::Tensor& target,
                             const ClassificationOptions& options = {});

/// One minus the accuracy of each class or label, averaged like the accuracy and exact over batches in the same cases.
/// 1 for a class or label without targets. Named "hamming_loss".
MetricFunc binary_hamming_loss(const BinaryOptions& options = {});
MetricFunc multiclass_hamming_loss(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_hamming_loss(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor hamming_loss(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

}  // namespace danling::inline v0::metrics
