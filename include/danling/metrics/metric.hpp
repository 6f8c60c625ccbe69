// A metric as a plain function of one batch, and what is done to a batch before.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_value.hpp>

namespace danling::inline v0 {

/// A metric: what `target` says of `prediction`. Called without gradient recording.
using Metric = std::function<MetricValue(const at::Tensor& prediction, const at::Tensor& target)>;

/// What is done to a batch before the metrics see it.
using Preprocess = std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&)>;

struct PreprocessOptions {
  /// Labels of this value, and their predictions, are dropped.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  /// Targets that are nan, and their predictions, are dropped.
  bool ignore_nan = false;
};

/// Drops what is to be ignored (a device wait, as the number of the rest is needed); where prediction and target have
/// as many elements, also drops dimensions of size one behind the first. DanLing's base_preprocess.
/// @throws MetricError when something is to be ignored and the prediction does not begin with the target's shape.
std::pair<at::Tensor, at::Tensor> base_preprocess(const at::Tensor& prediction, const at::Tensor& target,
                                                  const PreprocessOptions& options = {});

}  // namespace danling::inline v0
