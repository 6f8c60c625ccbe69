// Matthews' correlation of predicted and target labels.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// From -1 to 1, computed from the confusion matrix; multilabel: from the sum of the labels' matrices. Named "mcc".
///
/// Undefined cases follow torchmetrics. All decisions correct: 1. No counted samples: nan. Otherwise, more than two
/// classes: 0. Two classes with an empty row or column in the matrix, and both correct and wrong decisions: the limit
/// of the formula from nearby counts, such as (TP - FP) / sqrt((TP + FP) TP FP) if 1 is predicted everywhere.
MetricFunc binary_mcc(const BinaryOptions& options = {});
MetricFunc multiclass_mcc(std::int64_t num_classes, std::optional<std::int64_t> ignore_index = -100);
MetricFunc multilabel_mcc(std::int64_t num_labels, const BinaryOptions& options = {});
/// Dispatches by task. `average` must be macro and `top_k` 1, which have no effect.
MetricFunc mcc(const ClassificationOptions& options);

/// A float64 scalar on the input's device, without waiting.
/// @throws MetricError as preprocess_classification, and for invalid options.
at::Tensor mcc(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

}  // namespace danling::inline v0::metrics
