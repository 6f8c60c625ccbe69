// Regression errors and explained variance.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::metrics {

/// Reduction of values by output.
enum class MultiOutput {
  raw_values,        ///< one value per output; a scalar for one output
  uniform_average,   ///< the mean over outputs
  variance_weighted  ///< the mean over outputs, weighted by the variance of their targets; uniform if all are constant
};

/// @throws ConfigError that lists the names.
MultiOutput parse_multi_output(std::string_view name);

struct RegressionErrorOptions {
  std::int64_t num_outputs = 1;
  /// variance_weighted is not supported.
  MultiOutput multioutput = MultiOutput::raw_values;
};

struct RegressionOptions {
  std::int64_t num_outputs = 1;
  MultiOutput multioutput = MultiOutput::uniform_average;
};

// Predictions and targets have one shape: [N] or [N, num_outputs]. Computed in float64 from running moments, which the
// metrics of a container share. They store no predictions and merge over batches and ranks up to rounding, even if the
// mean is large compared to the spread. Samples with a nan target are skipped; nan predictions and missing data yield
// nan. Infinite predictions make errors inf, r2 -inf, and the explained variance nan. Nothing waits for a device. Each
// metric has the name of its function, but r2_score is named "r2".
// @throws MetricError for invalid options and shapes.

// Lower is better.
MetricFunc mae(const RegressionErrorOptions& options = {});
MetricFunc mse(const RegressionErrorOptions& options = {});
/// The square root of `mse`, per output.
MetricFunc rmse(const RegressionErrorOptions& options = {});
/// The mean of |error| / max(|target|, 1.17e-6), as in torchmetrics: a fraction, not percent.
MetricFunc mape(const RegressionErrorOptions& options = {});

// Higher is better. As in scikit-learn: 1 if the residuals are 0, else 0 if the targets are constant.
/// 1 - residual sum of squares / total sum of squares; nan for less than two samples.
MetricFunc r2_score(const RegressionOptions& options = {});
/// 1 - variance of the residuals / variance of the targets.
MetricFunc explained_variance(const RegressionOptions& options = {});

// One-shot functions apply preprocess_regression, which drops samples with a nan target, then the metric. They return a
// float64 scalar, or [num_outputs] for MultiOutput::raw_values of several outputs.
at::Tensor mae(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor mse(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor rmse(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor mape(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options = {});
at::Tensor r2_score(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options = {});
at::Tensor explained_variance(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options = {});

}  // namespace danling::inline v0::metrics
