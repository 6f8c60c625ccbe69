// Correlation of predictions and targets in regression.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/functional/regression.hpp>
#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::metrics {

enum class KendallVariant {
  a,  ///< over pairs without ties: torchmetrics' a, Goodman and Kruskal's gamma
  b,  ///< corrected for ties
  c   ///< for tables that are not square (Stuart)
};

/// @throws ConfigError that lists the names.
KendallVariant parse_kendall_variant(std::string_view name);

struct KendallOptions {
  KendallVariant variant = KendallVariant::b;
  std::int64_t num_outputs = 1;
  MultiOutput multioutput = MultiOutput::uniform_average;
};

// Shapes, nan, devices and names are as in regression.hpp. Higher is better.

/// Computed from the running moments. nan if predictions or targets are constant, also in the average over outputs.
MetricFunc pearson(const RegressionOptions& options = {});
/// Lin's concordance, from the running moments; with the unbiased variance, as in torchmetrics. nan if predictions or
/// targets are constant.
MetricFunc concordance(const RegressionOptions& options = {});
/// Pearson's correlation of the ranks; ties share their mean rank. Needs all predictions. 0 if predictions or targets
/// are constant, as in torchmetrics, but without its 1e-6 in the denominator.
MetricFunc spearman(const RegressionOptions& options = {});
/// Kendall's tau, in n log n (Knight, 1966); needs all predictions. nan if predictions or targets are constant.
/// Computed on the host: waits for the device.
MetricFunc kendall(const KendallOptions& options = {});

at::Tensor pearson(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options = {});
at::Tensor concordance(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options = {});
at::Tensor spearman(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options = {});
at::Tensor kendall(const at::Tensor& input, const at::Tensor& target, const KendallOptions& options = {});

}  // namespace danling::inline v0::metrics
