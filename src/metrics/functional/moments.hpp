// Running moments of predictions, targets and errors: the input of most regression metrics.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <danling/metrics/functional/regression.hpp>
#include <danling/metrics/metric_func.hpp>

#include <metrics/functional/score_columns.hpp>

namespace danling::inline v0::metrics::detail {

/// Moments of one output, in the order of a tensor [num_outputs, num_moments]. X: double, or a tensor of one value per
/// output. Stores means and central sums to avoid cancellation; the error, target - prediction, has separate moments,
/// since it may be tiny compared to both. A constant has a sum of squares of exactly 0.
template <class X>
struct Moments {
  X n;
  X mean_pred;
  X mean_target;
  X mean_error;
  X squares_pred;
  X squares_target;
  X squares_error;
  X products;  // of predictions times targets
  X abs_error;
  X relative_error;
  // Rounding errors of the means (compensation): without them, means that are large compared to the spread lose digits.
  X rest_pred;
  X rest_target;
  X rest_error;
};
constexpr std::int64_t num_moments = 13;

/// Moments that a one-shot metric needs; the others are 0. Metrics of a container share all moments.
enum class MomentParts {
  all,
  absolute,     ///< abs_error
  relative,     ///< relative_error
  square,       ///< squares_error, about 0
  unexplained,  ///< squares_error, about 0, and those of the targets
  residual,     ///< of errors and targets
  correlation,  ///< of predictions and targets
};

/// The moments of a batch. @throws MetricError for invalid shapes.
RunningSumsPtr running_moments(std::int64_t num_outputs, MomentParts parts = MomentParts::all);
at::Tensor moments_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs,
                           MomentParts parts = MomentParts::all);
at::Tensor moments_on_device(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs);
/// Merges as Chan, Golub and LeVeque (1979).
void merge_row(double* row, const Moments<double>& more);
void merge_moments_on_host(at::Tensor& total, const at::Tensor& more);
void merge_moments_on_device(at::Tensor& total, const at::Tensor& more);

/// @throws MetricError unless both are real and of shape [N] or [N, num_outputs].
void check_outputs(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs,
                   std::string_view where);

inline double choose(bool condition, double yes, double no) { return condition ? yes : no; }
inline at::Tensor choose(const at::Tensor& condition, const at::Tensor& yes, const at::Tensor& no) {
  return at::where(condition, yes, no);
}
inline at::Tensor choose(const at::Tensor& condition, double yes, const at::Tensor& no) {
  return at::where(condition, yes, no);
}
inline double root(double x) { return std::sqrt(x); }
inline at::Tensor root(const at::Tensor& x) { return x.sqrt(); }

inline constexpr double undefined_value = std::numeric_limits<double>::quiet_NaN();

// The smallest divisor in torchmetrics' mean_absolute_percentage_error.
inline constexpr double least_target = 1.17e-6;

Moments<double> load_row(const double* row);
Moments<double> moments_of(const at::Tensor& sums, std::int64_t output);
Moments<at::Tensor> moments_of(const at::Tensor& sums);

/// One value per output, [num_outputs], from a formula over Moments of numbers (host) or of tensors (device).
template <class Formula>
at::Tensor by_output(const at::Tensor& sums, Formula formula) {
  if (!sums.is_cpu()) {
    return formula(moments_of(sums));
  }
  at::Tensor out = host_vector(sums.size(0));
  auto* data = out.mutable_data_ptr<double>();
  for (std::int64_t k = 0; k < sums.size(0); ++k) {
    data[k] = formula(moments_of(sums, k));
  }
  return out;
}

/// Reduces values over outputs. `weights`: the variance of the targets, or a value proportional to it.
MetricValue reduce_outputs(const at::Tensor& values, const at::Tensor& weights, MultiOutput how);
double mean_output_on_host(const at::Tensor& values, const at::Tensor& weights, MultiOutput how);
at::Tensor mean_output_on_device(const at::Tensor& values, const at::Tensor& weights, MultiOutput how);

/// A metric whose value is a formula over moments.
template <class Formula>
MetricFunc moments_metric(const char* name, const RegressionOptions& options, MomentParts parts, Formula formula) {
  MetricFunc out{.name = name, .sums = {running_moments(options.num_outputs, parts)}, .higher_is_better = true};
  out.compute = [sums = out.sums[0], how = options.multioutput, formula](const MetricState& state) {
    const at::Tensor moments = state.sums(sums);
    const at::Tensor values = by_output(moments, formula);
    const at::Tensor weights = how == MultiOutput::variance_weighted
                                   ? by_output(moments, [](const auto& m) { return m.squares_target; })
                                   : at::Tensor();
    return reduce_outputs(values, weights, how);
  };
  return out;
}

}  // namespace danling::inline v0::metrics::detail
