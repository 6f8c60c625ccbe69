// The share of correct, or of wrong, decisions.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

// One-shot functions preprocess their input for the task and return float64 on its device: a scalar, or one value per
// class or label for Average::none. Values are nan without counted samples. Nothing waits for a device.
// @throws MetricError as preprocess_classification, and for invalid options.

/// The share of labels that were predicted. As `acc`. Exact over batches in a stream: binary, micro, and weighted
/// multiclass, since these weigh by counted labels.
///
/// Multiclass: for each class, the share of its targets that were predicted (its recall); Average::macro is over the
/// classes that are a target or predicted (with top_k > 1: only those that are a target). Among equal scores the first
/// is predicted, and nan is above all numbers. Multilabel: for each label, the share of correct decisions, 0 if none
/// counts.
MetricFunc binary_accuracy(const BinaryOptions& options = {});
MetricFunc multiclass_accuracy(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_accuracy(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor accuracy(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

/// The mean of recall and specificity; multiclass: the mean recall of the classes, for Average::macro and `top_k` 1
/// only. As `balanced_accuracy`.
MetricFunc binary_balanced_accuracy(const BinaryOptions& options = {});
MetricFunc multiclass_balanced_accuracy(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_balanced_accuracy(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor balanced_accuracy(const at::Tensor& input, const at::Tensor& target,
                             const ClassificationOptions& options = {});

/// One minus the accuracy of each class or label, averaged as accuracy is; exact over batches in the same cases. A
/// class
/// or label without targets has 1. As `hamming_loss`.
MetricFunc binary_hamming_loss(const BinaryOptions& options = {});
MetricFunc multiclass_hamming_loss(std::int64_t num_classes, const MulticlassOptions& options = {});
MetricFunc multilabel_hamming_loss(std::int64_t num_labels, const MultilabelOptions& options = {});
at::Tensor hamming_loss(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

}  // namespace danling::inline v0::metrics
