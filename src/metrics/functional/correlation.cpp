#include <danling/metrics/functional/correlation.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <danling/core/error.hpp>

#include <metrics/functional/moments.hpp>
#include <metrics/functional/names.hpp>
#include <metrics/functional/rank_correlation.hpp>
#include <metrics/functional/score_values.hpp>

namespace danling::inline v0::metrics {
namespace {

using detail::choose;
using detail::MomentParts;
using detail::root;
using detail::undefined_value;

double at_most_one(double x) { return std::isnan(x) ? x : std::min(1.0, std::max(-1.0, x)); }
at::Tensor at_most_one(const at::Tensor& x) { return x.clamp(-1.0, 1.0); }

// The variance of the targets per output, as weights; nan targets are skipped.
at::Tensor target_squares(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
  const at::Tensor moments = preds.is_cpu() ? detail::moments_on_host(targets, targets, num_outputs)
                                            : detail::moments_on_device(targets, targets, num_outputs);
  return detail::by_output(moments, [](const auto& m) { return m.squares_target; });
}

template <class Values>
MetricFunc ranked_metric(const char* name, const char* where, std::int64_t num_outputs, MultiOutput how,
                         Values values) {
  check<MetricError>(num_outputs > 0, where, "expected a positive num_outputs, got ", num_outputs);
  MetricFunc out{.name = name, .preds_targets = true, .higher_is_better = true};
  out.compute = [=](const MetricState& state) {
    detail::check_outputs(state.preds(), state.targets(), num_outputs, where);
    const at::Tensor weights = how == MultiOutput::variance_weighted
                                   ? target_squares(state.preds(), state.targets(), num_outputs)
                                   : at::Tensor();
    return detail::reduce_outputs(values(state.preds(), state.targets(), num_outputs), weights, how);
  };
  return out;
}

MetricFunc pearson_of(const RegressionOptions& options, MomentParts parts) {
  return detail::moments_metric("pearson", options, parts, [](const auto& m) {
    return at_most_one(m.products / (root(m.squares_pred) * root(m.squares_target)));
  });
}

}  // namespace

KendallVariant parse_kendall_variant(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, KendallVariant>, 3> names = {
      {{"a", KendallVariant::a}, {"b", KendallVariant::b}, {"c", KendallVariant::c}}};
  return detail::parse_name(names, name, "metrics.parse_kendall_variant");
}

MetricFunc pearson(const RegressionOptions& options) { return pearson_of(options, MomentParts::all); }

MetricFunc concordance(const RegressionOptions& options) {
  return detail::moments_metric("concordance", options, MomentParts::all, [](const auto& m) {
    const auto both = m.squares_pred + m.squares_target + (m.n - 1.0) * m.mean_error * m.mean_error;
    return choose(m.squares_pred == 0.0, undefined_value,
                  choose(m.squares_target == 0.0, undefined_value, 2.0 * m.products / both));
  });
}

MetricFunc spearman(const RegressionOptions& options) {
  return ranked_metric("spearman", "metrics.spearman", options.num_outputs, options.multioutput,
                       [](const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
                         return preds.is_cpu() ? detail::spearman_on_host(preds, targets, num_outputs)
                                               : detail::spearman_on_device(preds, targets, num_outputs);
                       });
}

MetricFunc kendall(const KendallOptions& options) {
  return ranked_metric(
      "kendall", "metrics.kendall", options.num_outputs, options.multioutput,
      [variant = options.variant](const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
        return detail::kendall_on_host(preds.cpu(), targets.cpu(), num_outputs, variant).to(preds.device());
      });
}

at::Tensor pearson(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options) {
  return detail::one_shot(pearson_of(options, MomentParts::correlation),
                          detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor concordance(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options) {
  return detail::one_shot(concordance(options), detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor spearman(const at::Tensor& input, const at::Tensor& target, const RegressionOptions& options) {
  return detail::one_shot(spearman(options), detail::preprocess_outputs(input, target, options.num_outputs));
}
at::Tensor kendall(const at::Tensor& input, const at::Tensor& target, const KendallOptions& options) {
  return detail::one_shot(kendall(options), detail::preprocess_outputs(input, target, options.num_outputs));
}

}  // namespace danling::inline v0::metrics
