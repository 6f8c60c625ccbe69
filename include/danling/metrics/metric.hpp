// A metric as a plain function of one batch, and what is done to a batch before.
#pragma once

#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_value.hpp>

namespace danling::inline v0 {

/// A metric: what `target` says of `prediction`. Called without gradient recording.
using Metric = std::function<MetricValue(const at::Tensor& prediction, const at::Tensor& target)>;

/// What is done to a batch before the metrics see it.
using Preprocess = std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&)>;

}  // namespace danling::inline v0
