// Errors of regression, and how much of the targets' variance predictions explain.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::metrics {

/// How values by output become one.
enum class MultiOutput {
  raw_values,        ///< one value per output; a scalar for one output
  uniform_average,   ///< the mean over outputs
  variance_weighted  ///< the mean over outputs, by the variance of their targets; uniform where there is none
};

/// @throws ConfigError that lists the names.
MultiOutput parse_multi_output(std::string_view name);

struct RegressionErrorOptions {
  std::int64_t num_outputs = 1;
  /// Not variance_weighted.
  MultiOutput multioutput = MultiOutput::raw_values;
};

struct RegressionOptions {
  std::int64_t num_outputs = 1;
  MultiOutput multioutput = MultiOutput::uniform_average;
};

// Predictions and targets are of one shape: [N], or [N, num_outputs]. All is computed in float64 from running moments
// that metrics of one container share, which keep no predictions and merge over batches and ranks to rounding, however
// large the mean is beside the spread. Samples with a nan among their targets do not count; nan predictions give nan;
// so does no data. Infinite predictions make errors inf and r2 -inf, the explained variance nan. On a device nothing
// waits. Named as the functions, but r2_score is "r2".
// @throws MetricError for options and shapes that do not fit.

// Lower is better.
MetricFunc mae(const RegressionErrorOptions& options = {});
MetricFunc mse(const RegressionErrorOptions& options = {});
/// The root of `mse`, output by output.
MetricFunc rmse(const RegressionErrorOptions& options = {});
/// The mean of |error| / max(|target|, 1.17e-6), as in torchmetrics: a share, not percent.
MetricFunc mape(const RegressionErrorOptions& options = {});

// Higher is better. Scikit-learn's: 1 where nothing is left over, else 0 where the targets are constant.
/// 1 - residual sum of squares / total sum of squares; nan for less than two samples.
MetricFunc r2_score(const RegressionOptions& options = {});
/// 1 - variance of the residuals / variance of the targets.
MetricFunc explained_variance(const RegressionOptions& options = {});

// One shots: preprocess_regression, which drops samples whose target is nan, then the metric. A float64 scalar, or
// [num_outputs] for MultiOutput::raw_values of several outputs.
at::Tensor mae(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor mse(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor rmse(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor mape(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor r2_score(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options = {});
at::Tensor explained_variance(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options = {});

}  // namespace danling::inline v0::metrics
