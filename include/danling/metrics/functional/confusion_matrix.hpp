// Confusion matrix: counts of predicted labels by target.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// Divisor of the counts: none, the targets of the class, the predictions of the class, or all samples.
enum class Normalize { none, targets, predictions, all };

/// Also accepts scikit-learn's names `true` and `pred`. @throws ConfigError that lists the names.
Normalize parse_normalize(std::string_view name);

/// Counts as float64; rows are targets, columns are predictions: [2, 2], [num_classes, num_classes], or for multilabel
/// [num_labels, 2, 2]. Named "confusion_matrix". 0 / 0 is 0; all entries are 0 without counted samples.
MetricFunc binary_confusion_matrix(const BinaryOptions& options = {}, Normalize normalize = Normalize::none);
MetricFunc multiclass_confusion_matrix(std::int64_t num_classes, std::optional<std::int64_t> ignore_index = -100,
                                       Normalize normalize = Normalize::none);
MetricFunc multilabel_confusion_matrix(std::int64_t num_labels, const BinaryOptions& options = {},
                                       Normalize normalize = Normalize::none);

/// Float64 on the input's device, without waiting. `average` must be macro and `top_k` 1, which have no effect.
/// @throws MetricError as preprocess_classification, and for invalid options.
at::Tensor confusion_matrix(const at::Tensor& input, const at::Tensor& target,
                            const ClassificationOptions& options = {}, Normalize normalize = Normalize::none);

}  // namespace danling::inline v0::metrics
