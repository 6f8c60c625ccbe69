// Agreement of predicted and target labels beyond chance.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// Cost of a disagreement between two classes: 1, the distance of their numbers, or its square.
enum class KappaWeights { none, linear, quadratic };

/// @throws ConfigError that lists the names.
KappaWeights parse_kappa_weights(std::string_view name);

/// One minus the ratio of the cost of the disagreements to the cost expected by chance: 1 is perfect, 0 is chance.
/// Named "cohen_kappa". nan if chance agreement is 1 (one class), and without counted samples, as in torchmetrics and
/// scikit-learn. For two classes all weights give the same value, so the binary metric has no weights.
MetricFunc binary_cohen_kappa(const BinaryOptions& options = {});
MetricFunc multiclass_cohen_kappa(std::int64_t num_classes, std::optional<std::int64_t> ignore_index = -100,
                                  KappaWeights weights = KappaWeights::none);

/// A float64 scalar on the input's device, without waiting. `average` must be macro and `top_k` 1, which have no
/// effect.
/// @throws MetricError as preprocess_classification, for invalid options, and for multilabel.
at::Tensor cohen_kappa(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {},
                       KappaWeights weights = KappaWeights::none);

}  // namespace danling::inline v0::metrics
