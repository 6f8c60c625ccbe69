// A metric as a plain function of one batch, and its preprocessing.
#pragma once

#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_value.hpp>

namespace danling::inline v0 {

/// A metric: maps a prediction and its target to a value. Called without gradient recording.
using MetricCallable = std::function<MetricValue(const at::Tensor& prediction, const at::Tensor& target)>;

using Metric [[deprecated("use MetricCallable")]] = MetricCallable;

/// Preprocessing of a batch for metrics: maps (prediction, target) to predictions and targets.
using Preprocess = std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&)>;

}  // namespace danling::inline v0
