// Matthews' correlation of predicted and target labels.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// From -1 to 1, of the confusion matrix; multilabel: of the sum of the labels' matrices. As `mcc`.
///
/// Where it is not defined, as torchmetrics has it: 0 for more than two classes; for two, where one row or column of
/// the matrix is empty and decisions are right and wrong, the limit of the formula from nearby counts, such as (TP -
/// FP) / sqrt((TP + FP) TP FP) when all are predicted 1. 1 where all are right, nan where nothing counts.
MetricFunc binary_mcc(const BinaryOptions& options = {});
MetricFunc multiclass_mcc(std::int64_t num_classes, std::optional<std::int64_t> ignore_index = -100);
MetricFunc multilabel_mcc(std::int64_t num_labels, const BinaryOptions& options = {});
/// That of the task; `average` must be macro and `top_k` 1, as they say nothing here.
MetricFunc mcc(const ClassificationOptions& options);

/// A float64 scalar on the input's device, where nothing waits.
/// @throws MetricError as preprocess_classification, and for options that do not fit.
at::Tensor mcc(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {});

}  // namespace danling::inline v0::metrics
