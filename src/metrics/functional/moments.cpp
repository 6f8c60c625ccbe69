#include <metrics/functional/moments.hpp>

#include <algorithm>
#include <array>
#include <memory>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr const char* moments_where = "metrics.regression";

// A mean and its rounding error.
template <class X>
struct Mean {
  X mean;
  X rest;
};

// The mean after a small shift.
template <class X>
Mean<X> shifted(const Mean<X>& from, const X& by) {
  const X sum = from.mean + by;
  const X rounded = sum - from.mean;
  const X small = from.rest + ((from.mean - (sum - rounded)) + (by - rounded));
  const X whole = sum + small;
  return {whole, small - (whole - sum)};
}

template <class X>
X distance(const Mean<X>& a, const Mean<X>& b) {
  return (b.mean - a.mean) + (b.rest - a.rest);
}

// Starts from the mean of the larger part and moves it by a share of the distance between `a` and `b`: the smaller
// move.
Mean<double> merged_mean(const Mean<double>& a, const Mean<double>& b, double by, double share) {
  return share > 0.5 ? shifted(b, by * (share - 1.0)) : shifted(a, by * share);
}
Mean<at::Tensor> merged_mean(const Mean<at::Tensor>& a, const Mean<at::Tensor>& b, const at::Tensor& by,
                             const at::Tensor& share) {
  const at::Tensor more = share.gt(0.5);
  return shifted<at::Tensor>({at::where(more, b.mean, a.mean), at::where(more, b.rest, a.rest)},
                             by * at::where(more, share - 1.0, share));
}

// Older states lack the rests of the means.
at::Tensor saved_without_rests(const at::Tensor& saved) {
  constexpr std::int64_t num_rests = 3;
  if (saved.dim() != 2 || saved.size(1) != num_moments - num_rests) {
    return {};
  }
  return at::cat({saved, at::zeros({saved.size(0), num_rests}, saved.options())}, 1);
}

}  // namespace

Moments<double> load_row(const double* row) {
  return {row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11], row[12]};
}

void merge_row(double* row, const Moments<double>& b) {
  Moments<double> a = load_row(row);
  if (b.n == 0.0) {
    return;
  }
  if (a.n == 0.0) {
    a = b;
  } else {
    const double n = a.n + b.n;
    const double share = b.n / n;
    const Mean<double> pred_a = {a.mean_pred, a.rest_pred};
    const Mean<double> pred_b = {b.mean_pred, b.rest_pred};
    const Mean<double> target_a = {a.mean_target, a.rest_target};
    const Mean<double> target_b = {b.mean_target, b.rest_target};
    const Mean<double> error_a = {a.mean_error, a.rest_error};
    const Mean<double> error_b = {b.mean_error, b.rest_error};
    const double pred = distance(pred_a, pred_b);
    const double target = distance(target_a, target_b);
    const double error = distance(error_a, error_b);
    const double weight = a.n * share;
    a.n = n;
    const auto [mean_pred, rest_pred] = merged_mean(pred_a, pred_b, pred, share);
    a.mean_pred = mean_pred;
    a.rest_pred = rest_pred;
    const auto [mean_target, rest_target] = merged_mean(target_a, target_b, target, share);
    a.mean_target = mean_target;
    a.rest_target = rest_target;
    const auto [mean_error, rest_error] = merged_mean(error_a, error_b, error, share);
    a.mean_error = mean_error;
    a.rest_error = rest_error;
    a.squares_pred += b.squares_pred + pred * pred * weight;
    a.squares_target += b.squares_target + target * target * weight;
    a.squares_error += b.squares_error + error * error * weight;
    a.products += b.products + pred * target * weight;
    a.abs_error += b.abs_error;
    a.relative_error += b.relative_error;
  }
  const std::array<double, num_moments> out = {
      a.n,        a.mean_pred, a.mean_target,    a.mean_error, a.squares_pred, a.squares_target, a.squares_error,
      a.products, a.abs_error, a.relative_error, a.rest_pred,  a.rest_target,  a.rest_error};
  std::copy(out.begin(), out.end(), row);
}

void check_outputs(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs,
                   std::string_view where) {
  const bool fits = preds.defined() && targets.defined() && !preds.is_complex() && !targets.is_complex() &&
                    preds.sizes() == targets.sizes() &&
                    ((preds.dim() == 1 && num_outputs == 1) || (preds.dim() == 2 && preds.size(1) == num_outputs));
  if (!fits) [[unlikely]] {
    fail<MetricError>(where, "expected predictions and targets of shape ",
                      num_outputs == 1 ? std::string("[N]") : concat("[N, ", num_outputs, "]"), ", got ",
                      danling::detail::tensor_text(preds), " and ", danling::detail::tensor_text(targets));
  }
  check<MetricError>(preds.device() == targets.device(), where, "expected predictions and targets on one device, got ",
                     preds.device().str(), " and ", targets.device().str());
}

RunningSumsPtr running_moments(std::int64_t num_outputs, MomentParts parts) {
  check<MetricError>(num_outputs > 0, moments_where, "expected a positive num_outputs, got ", num_outputs);
  return std::make_shared<const RunningSums>(
      RunningSums{.key = concat("moments of ", num_outputs, " outputs"),
                  .of_batch =
                      [num_outputs, parts](const at::Tensor& preds, const at::Tensor& targets) {
                        check_outputs(preds, targets, num_outputs, moments_where);
                        return preds.is_cpu() ? moments_on_host(preds, targets, num_outputs, parts)
                                              : moments_on_device(preds, targets, num_outputs);
                      },
                  .merge =
                      [](at::Tensor& total, const at::Tensor& more) {
                        total.is_cpu() ? merge_moments_on_host(total, more) : merge_moments_on_device(total, more);
                      },
                  .form = RunningSums::Form{at::kDouble, {num_outputs, num_moments}},
                  .upgrade = [](const at::Tensor& saved) { return saved_without_rests(saved); }});
}

void merge_moments_on_host(at::Tensor& total, const at::Tensor& more) {
  auto* to = total.mutable_data_ptr<double>();
  const at::Tensor from = more.contiguous();
  for (std::int64_t k = 0; k < total.size(0); ++k) {
    merge_row(to + k * num_moments, moments_of(from, k));
  }
}

at::Tensor moments_on_device(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
  const at::Tensor pred = preds.to(at::kDouble).reshape({-1, num_outputs});
  const at::Tensor target = targets.to(at::kDouble).reshape({-1, num_outputs});
  if (pred.size(0) == 0) {
    return at::zeros({num_outputs, num_moments}, pred.options());
  }
  const at::Tensor counted = target.isnan().any(1, /*keepdim=*/true).logical_not();
  const at::Tensor n = counted.sum().to(at::kDouble).expand({num_outputs});
  const at::Tensor divisor = n.clamp_min(1.0);
  const at::Tensor error = target - pred;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // The minimum replaces the first value, which the host's loop uses: reading that would need a wait.
  const auto mean_of = [&](const at::Tensor& x) {
    const at::Tensor least = at::where(n.gt(0), at::where(counted, x, infinity).amin(0), 0.0);
    return least + at::where(counted, x - least, 0.0).sum(0) / divisor;
  };
  const at::Tensor mean_pred = mean_of(pred);
  const at::Tensor mean_target = mean_of(target);
  const at::Tensor mean_error = mean_of(error);
  const at::Tensor pred_rest = at::where(counted, pred - mean_pred, 0.0);
  const at::Tensor target_rest = at::where(counted, target - mean_target, 0.0);
  const at::Tensor error_rest = at::where(counted, error - mean_error, 0.0);
  const auto products = [&](const at::Tensor& a, const at::Tensor& b) {
    return (a * b).sum(0) - a.sum(0) * b.sum(0) / divisor;
  };
  const at::Tensor absolute = at::where(counted, error.abs(), 0.0);
  return at::stack(
      {n, mean_pred, mean_target, mean_error, products(pred_rest, pred_rest), products(target_rest, target_rest),
       products(error_rest, error_rest), products(pred_rest, target_rest), absolute.sum(0),
       (absolute / at::where(counted, target, 1.0).abs().clamp_min(least_target)).sum(0), pred_rest.sum(0) / divisor,
       target_rest.sum(0) / divisor, error_rest.sum(0) / divisor},
      1);
}

void merge_moments_on_device(at::Tensor& total, const at::Tensor& more) {
  const Moments<at::Tensor> a = moments_of(total);
  const Moments<at::Tensor> b = moments_of(more);
  const at::Tensor n = a.n + b.n;
  const at::Tensor share = b.n / n.clamp_min(1.0);
  const at::Tensor weight = a.n * share;
  const Mean<at::Tensor> pred_a = {a.mean_pred, a.rest_pred};
  const Mean<at::Tensor> pred_b = {b.mean_pred, b.rest_pred};
  const Mean<at::Tensor> target_a = {a.mean_target, a.rest_target};
  const Mean<at::Tensor> target_b = {b.mean_target, b.rest_target};
  const Mean<at::Tensor> error_a = {a.mean_error, a.rest_error};
  const Mean<at::Tensor> error_b = {b.mean_error, b.rest_error};
  const at::Tensor pred = distance(pred_a, pred_b);
  const at::Tensor target = distance(target_a, target_b);
  const at::Tensor error = distance(error_a, error_b);
  const auto [mean_pred, rest_pred] = merged_mean(pred_a, pred_b, pred, share);
  const auto [mean_target, rest_target] = merged_mean(target_a, target_b, target, share);
  const auto [mean_error, rest_error] = merged_mean(error_a, error_b, error, share);
  total.copy_(at::stack(
      {n, mean_pred, mean_target, mean_error, a.squares_pred + b.squares_pred + pred * pred * weight,
       a.squares_target + b.squares_target + target * target * weight,
       a.squares_error + b.squares_error + error * error * weight, a.products + b.products + pred * target * weight,
       a.abs_error + b.abs_error, a.relative_error + b.relative_error, rest_pred, rest_target, rest_error},
      1));
}

Moments<double> moments_of(const at::Tensor& sums, std::int64_t output) {
  return load_row(sums.const_data_ptr<double>() + output * num_moments);
}

Moments<at::Tensor> moments_of(const at::Tensor& sums) {
  const auto m = [&](std::int64_t i) { return sums.select(1, i); };
  return {m(0), m(1), m(2), m(3), m(4), m(5), m(6), m(7), m(8), m(9), m(10), m(11), m(12)};
}

at::Tensor mean_output_on_device(const at::Tensor& values, const at::Tensor& weights, MultiOutput how) {
  if (how == MultiOutput::uniform_average) {
    return values.mean();
  }
  const at::Tensor sum = weights.sum();
  return at::where(sum.gt(0), (values * weights).sum() / sum, values.mean());
}

double mean_output_on_host(const at::Tensor& values, const at::Tensor& weights, MultiOutput how) {
  const double* value = values.const_data_ptr<double>();
  const double* weight = how == MultiOutput::variance_weighted ? weights.const_data_ptr<double>() : nullptr;
  double sum = 0.0;
  double weighted = 0.0;
  double total = 0.0;
  for (std::int64_t k = 0; k < values.numel(); ++k) {
    sum += value[k];
    weighted += weight != nullptr ? value[k] * weight[k] : 0.0;
    total += weight != nullptr ? weight[k] : 0.0;
  }
  return total > 0.0 ? weighted / total : sum / static_cast<double>(values.numel());
}

MetricValue reduce_outputs(const at::Tensor& values, const at::Tensor& weights, MultiOutput how) {
  if (values.numel() == 1) {
    return values.is_cpu() ? MetricValue(danling::detail::read_scalar(values)) : MetricValue(values.squeeze(0));
  }
  if (how == MultiOutput::raw_values) {
    return values;
  }
  return values.is_cpu() ? MetricValue(mean_output_on_host(values, weights, how))
                         : MetricValue(mean_output_on_device(values, weights, how));
}

}  // namespace danling::inline v0::metrics::detail
