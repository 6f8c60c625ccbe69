#include <danling/metrics/functional/regression.hpp>

#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <danling/core/error.hpp>

#include <metrics/functional/moments.hpp>
#include <metrics/functional/names.hpp>
#include <metrics/functional/score_values.hpp>

namespace danling::inline v0::metrics {
namespace {

using detail::by_output;
using detail::choose;
using detail::MomentParts;
using detail::root;
using detail::undefined_value;

// The mean and the spread of errors are nan if an error is infinite; only the sum of absolute errors shows it.
const auto squared_error_sum = [](const auto& m) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return choose(m.abs_error == infinity, infinity, m.squares_error + m.n * m.mean_error * m.mean_error);
};
// 1 - rest / spread. For a divisor of 0 scikit-learn's value: 1 if the rest is 0, else 0, but nan for nan.
const auto explained_share = [](const auto& rest, const auto& spread) {
  return choose(rest == 0.0, 1.0, choose(spread == 0.0, 0.0 / (1.0 + rest), 1.0 - rest / spread));
};

void check_error_options(const RegressionErrorOptions& options, const char* where) {
  check<MetricError>(options.multioutput != MultiOutput::variance_weighted, where,
                     "expected multioutput raw_values or uniform_average, got variance_weighted");
}

// A mean over samples from the sums per output. A single number stays a sum, which is exact over batches.
template <class Sum>
MetricFunc mean_error(const char* name, const char* where, const RegressionErrorOptions& options, MomentParts parts,
                      Sum sum_of) {
  check_error_options(options, where);
  MetricFunc out{
      .name = name, .sums = {detail::running_moments(options.num_outputs, parts)}, .higher_is_better = false};
  out.compute = [sums = out.sums[0], how = options.multioutput, sum_of](const MetricState& state) -> MetricValue {
    const at::Tensor moments = state.sums(sums);
    const std::int64_t num = moments.size(0);
    if (num > 1 && how == MultiOutput::raw_values) {
      return by_output(moments, [&](const auto& m) { return sum_of(m) / m.n; });
    }
    if (moments.is_cpu() && num == 1) {
      const auto m = detail::moments_of(moments, 0);
      return MetricValue::sum(sum_of(m), static_cast<std::int64_t>(m.n));
    }
    return MetricValue::sum(by_output(moments, sum_of).mean(), moments.select(1, 0).select(0, 0).to(at::kLong));
  };
  return out;
}

MetricFunc mae_of(const RegressionErrorOptions& options, MomentParts parts) {
  return mean_error("mae", "metrics.mae", options, parts, [](const auto& m) { return m.abs_error; });
}
MetricFunc mse_of(const RegressionErrorOptions& options, MomentParts parts) {
  return mean_error("mse", "metrics.mse", options, parts, squared_error_sum);
}
MetricFunc mape_of(const RegressionErrorOptions& options, MomentParts parts) {
  return mean_error("mape", "metrics.mape", options, parts, [](const auto& m) { return m.relative_error; });
}
MetricFunc rmse_of(const RegressionErrorOptions& options, MomentParts parts) {
  check_error_options(options, "metrics.rmse");
  MetricFunc out = detail::moments_metric("rmse", {options.num_outputs, options.multioutput}, parts,
                                          [](const auto& m) { return root(squared_error_sum(m) / m.n); });
  out.higher_is_better = false;
  return out;
}
MetricFunc r2_of(const RegressionOptions& options, MomentParts parts) {
  return detail::moments_metric("r2", options, parts, [](const auto& m) {
    return choose(m.n < 2.0, undefined_value, explained_share(squared_error_sum(m), m.squares_target));
  });
}
MetricFunc variance_of(const RegressionOptions& options, MomentParts parts) {
  return detail::moments_metric("explained_variance", options, parts, [](const auto& m) {
    return choose(m.n < 1.0, undefined_value, explained_share(m.squares_error, m.squares_target));
  });
}

}  // namespace

MultiOutput parse_multi_output(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, MultiOutput>, 3> names = {
      {{"raw_values", MultiOutput::raw_values},
       {"uniform_average", MultiOutput::uniform_average},
       {"variance_weighted", MultiOutput::variance_weighted}}};
  return detail::parse_name(names, name, "metrics.parse_multi_output");
}

MetricFunc mae(const RegressionErrorOptions& options) { return mae_of(options, MomentParts::all); }
MetricFunc mse(const RegressionErrorOptions& options) { return mse_of(options, MomentParts::all); }
MetricFunc rmse(const RegressionErrorOptions& options) { return rmse_of(options, MomentParts::all); }
MetricFunc mape(const RegressionErrorOptions& options) { return mape_of(options, MomentParts::all); }
MetricFunc r2_score(const RegressionOptions& options) { return r2_of(options, MomentParts::all); }
MetricFunc explained_variance(const RegressionOptions& options) { return variance_of(options, MomentParts::all); }

// A one-shot metric computes only the moments that it reads.

at::Tensor mae(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options) {
  return detail::one_shot(mae_of(options, MomentParts::absolute),
                          detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor mse(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options) {
  return detail::one_shot(mse_of(options, MomentParts::square),
                          detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor rmse(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options) {
  return detail::one_shot(rmse_of(options, MomentParts::square),
                          detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor mape(const at::Tensor& input, const at::Tensor& target, const RegressionErrorOptions& options) {
  return detail::one_shot(mape_of(options, MomentParts::relative),
                          detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor r2_score(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options) {
  return detail::one_shot(r2_of(options, MomentParts::unexplained),
                          detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor explained_variance(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options) {
  return detail::one_shot(variance_of(options, MomentParts::residual),
                          detail::preprocess_outputs(input, target, options.num_outputs));
}

}  // namespace danling::inline v0::metrics
