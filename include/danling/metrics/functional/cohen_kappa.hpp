// Agreement of predicted and target labels beyond chance.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// How much a disagreement between two classes costs: 1, the distance of their numbers, or its square.
enum class KappaWeights { none, linear, quadratic };

/// @throws ConfigError that lists the names.
KappaWeights parse_kappa_weights(std::string_view name);

/// One minus the cost of the disagreements over that expected by chance; 1 is perfect, 0 chance. As `cohen_kappa`.
/// nan where chance alone agrees (one class) and where nothing counts, as in torchmetrics and scikit-learn.
/// With two classes all weights give the same, so that binary labels need none.
MetricFunc binary_cohen_kappa(const BinaryOptions& options = {});
MetricFunc multiclass_cohen_kappa(std::int64_t num_classes, std::optional<std::int64_t> ignore_index = -100,
                                  KappaWeights weights = KappaWeights::none);

/// A float64 scalar on the input's device, where nothing waits. `average` must be macro and `top_k` 1, as they say
/// nothing here. @throws MetricError as preprocess_classification, for options that do not fit, and for multilabel.
at::Tensor cohen_kappa(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options = {},
                       KappaWeights weights = KappaWeights::none);

}  // namespace danling::inline v0::metrics
