// What is done to predictions and targets before the metrics of a task see them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric.hpp>

namespace danling::inline v0::metrics {

/// Joins samples of different sizes along one dimension: predictions of a target's shape end to end, predictions with
/// one dimension more (the classes; `class_dim` of a sample, found from the shapes when absent) as [items, classes].
/// @throws MetricError naming the sample, when the numbers of samples or the shapes of one do not fit.
std::pair<at::Tensor, at::Tensor> concat_samples(at::TensorList predictions, at::TensorList targets,
                                                 std::optional<std::int64_t> class_dim = std::nullopt);

}  // namespace danling::inline v0::metrics
