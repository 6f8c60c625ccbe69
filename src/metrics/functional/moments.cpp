#include <metrics/functional/moments.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/scalar.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr const char* moments_where = "metrics.regression";
// torchmetrics' smallest divisor of mean_absolute_percentage_error.
constexpr double least_target = 1.17e-6;

Moments<double> load(const double* row) {
  return {row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9]};
}

// Chan, Golub and LeVeque (1979): adds `b` to the moments in `row`.
void merge_row(double* row, const Moments<double>& b) {
  Moments<double> a = load(row);
  if (b.n == 0.0) {
    return;
  }
  if (a.n == 0.0) {
    a = b;
  } else {
    const double n = a.n + b.n;
    const double share = b.n / n;
    const double pred = b.mean_pred - a.mean_pred;
    const double target = b.mean_target - a.mean_target;
    const double error = b.mean_error - a.mean_error;
    const double weight = a.n * share;
    a.n = n;
    a.mean_pred += pred * share;
    a.mean_target += target * share;
    a.mean_error += error * share;
    a.squares_pred += b.squares_pred + pred * pred * weight;
    a.squares_target += b.squares_target + target * target * weight;
    a.squares_error += b.squares_error + error * error * weight;
    a.products += b.products + pred * target * weight;
    a.abs_error += b.abs_error;
    a.relative_error += b.relative_error;
  }
  const std::array<double, num_moments> out = {
      a.n,        a.mean_pred, a.mean_target,   a.mean_error, a.squares_pred, a.squares_target, a.squares_error,
      a.products, a.abs_error, a.relative_error};
  std::copy(out.begin(), out.end(), row);
}

// Shifted by the first value, then corrected for what rounding left in the mean: a constant has exactly no spread.
Moments<double> moments_of_block(const double* preds, const double* targets, std::int64_t n) {
  Moments<double> m = {};
  if (n == 0) {
    return m;
  }
  const double first_pred = preds[0];
  const double first_target = targets[0];
  const double first_error = first_target - first_pred;
  double sum_pred = 0.0;
  double sum_target = 0.0;
  double sum_error = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double error = targets[i] - preds[i];
    sum_pred += preds[i] - first_pred;
    sum_target += targets[i] - first_target;
    sum_error += error - first_error;
    m.abs_error += std::abs(error);
    m.relative_error += std::abs(error) / std::max(std::abs(targets[i]), least_target);
  }
  m.n = static_cast<double>(n);
  m.mean_pred = first_pred + sum_pred / m.n;
  m.mean_target = first_target + sum_target / m.n;
  m.mean_error = first_error + sum_error / m.n;
  sum_pred = sum_target = sum_error = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double pred = preds[i] - m.mean_pred;
    const double target = targets[i] - m.mean_target;
    const double error = targets[i] - preds[i] - m.mean_error;
    sum_pred += pred;
    sum_target += target;
    sum_error += error;
    m.squares_pred += pred * pred;
    m.squares_target += target * target;
    m.squares_error += error * error;
    m.products += pred * target;
  }
  m.squares_pred -= sum_pred * sum_pred / m.n;
  m.squares_target -= sum_target * sum_target / m.n;
  m.squares_error -= sum_error * sum_error / m.n;
  m.products -= sum_pred * sum_target / m.n;
  return m;
}

constexpr std::int64_t block_rows = 1024;

template <class T>
void add_block(const T* preds, const T* targets, std::int64_t rows, std::int64_t num_outputs, double* out) {
  std::array<double, block_rows> pred_column;
  std::array<double, block_rows> target_column;
  std::array<bool, block_rows> counts;
  for (std::int64_t i = 0; i < rows; ++i) {
    bool there = true;
    for (std::int64_t k = 0; k < num_outputs; ++k) {
      there &= !std::isnan(static_cast<double>(targets[i * num_outputs + k]));
    }
    counts[static_cast<std::size_t>(i)] = there;
  }
  for (std::int64_t k = 0; k < num_outputs; ++k) {
    std::size_t n = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      pred_column[n] = static_cast<double>(preds[i * num_outputs + k]);
      target_column[n] = static_cast<double>(targets[i * num_outputs + k]);
      n += counts[static_cast<std::size_t>(i)] ? 1 : 0;
    }
    merge_row(out + k * num_moments,
              moments_of_block(pred_column.data(), target_column.data(), static_cast<std::int64_t>(n)));
  }
}

template <class T>
void add_rows(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs, double* out) {
  const T* pred_data = preds.const_data_ptr<T>();
  const T* target_data = targets.const_data_ptr<T>();
  const std::int64_t rows = preds.numel() / num_outputs;
  const auto add = [&](std::int64_t begin, std::int64_t end, double* total) {
    for (std::int64_t row = begin; row < end; row += block_rows) {
      add_block(pred_data + row * num_outputs, target_data + row * num_outputs, std::min(block_rows, end - row),
                num_outputs, total);
    }
  };
  // Parts of fixed sizes, so that the number of threads does not change the result.
  constexpr std::int64_t part_rows = 64 * block_rows;
  const std::int64_t parts = (rows + part_rows - 1) / part_rows;
  if (parts <= 1) {
    add(0, rows, out);
    return;
  }
  const std::int64_t width = num_outputs * num_moments;
  std::vector<double> totals(static_cast<std::size_t>(parts * width), 0.0);
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      add(part * part_rows, std::min(rows, (part + 1) * part_rows), totals.data() + part * width);
    }
  });
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t k = 0; k < num_outputs; ++k) {
      merge_row(out + k * num_moments, load(totals.data() + part * width + k * num_moments));
    }
  }
}

}  // namespace

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

RunningSumsPtr running_moments(std::int64_t num_outputs) {
  check<MetricError>(num_outputs > 0, moments_where, "expected a positive num_outputs, got ", num_outputs);
  return std::make_shared<const RunningSums>(
      RunningSums{.key = concat("moments of ", num_outputs, " outputs"),
                  .of_batch =
                      [num_outputs](const at::Tensor& preds, const at::Tensor& targets) {
                        check_outputs(preds, targets, num_outputs, moments_where);
                        return preds.is_cpu() ? moments_on_host(preds, targets, num_outputs)
                                              : moments_on_device(preds, targets, num_outputs);
                      },
                  .merge =
                      [](at::Tensor& total, const at::Tensor& more) {
                        total.is_cpu() ? merge_moments_on_host(total, more) : merge_moments_on_device(total, more);
                      },
                  .form = RunningSums::Form{at::kDouble, {num_outputs, num_moments}}});
}

at::Tensor moments_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
  at::Tensor out = at::zeros({num_outputs, num_moments}, at::kDouble);
  auto* data = out.mutable_data_ptr<double>();
  if (preds.scalar_type() == at::kFloat && targets.scalar_type() == at::kFloat) {
    add_rows<float>(preds.contiguous(), targets.contiguous(), num_outputs, data);
  } else {
    add_rows<double>(preds.to(at::kDouble).contiguous(), targets.to(at::kDouble).contiguous(), num_outputs, data);
  }
  return out;
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
  // The least stands for the first value of the host's loop, which is not known without waiting.
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
       (absolute / at::where(counted, target, 1.0).abs().clamp_min(least_target)).sum(0)},
      1);
}

void merge_moments_on_device(at::Tensor& total, const at::Tensor& more) {
  const Moments<at::Tensor> a = moments_of(total);
  const Moments<at::Tensor> b = moments_of(more);
  const at::Tensor n = a.n + b.n;
  const at::Tensor share = b.n / n.clamp_min(1.0);
  const at::Tensor weight = a.n * share;
  const at::Tensor pred = b.mean_pred - a.mean_pred;
  const at::Tensor target = b.mean_target - a.mean_target;
  const at::Tensor error = b.mean_error - a.mean_error;
  total.copy_(at::stack(
      {n, a.mean_pred + pred * share, a.mean_target + target * share, a.mean_error + error * share,
       a.squares_pred + b.squares_pred + pred * pred * weight,
       a.squares_target + b.squares_target + target * target * weight,
       a.squares_error + b.squares_error + error * error * weight, a.products + b.products + pred * target * weight,
       a.abs_error + b.abs_error, a.relative_error + b.relative_error},
      1));
}

Moments<double> moments_of(const at::Tensor& sums, std::int64_t output) {
  return load(sums.const_data_ptr<double>() + output * num_moments);
}

Moments<at::Tensor> moments_of(const at::Tensor& sums) {
  const auto m = [&](std::int64_t i) { return sums.select(1, i); };
  return {m(0), m(1), m(2), m(3), m(4), m(5), m(6), m(7), m(8), m(9)};
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
