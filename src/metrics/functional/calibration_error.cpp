#include <danling/metrics/functional/calibration_error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/where.h>

#include <danling/core/error.hpp>

#include <metrics/functional/class_sums.hpp>
#include <metrics/functional/names.hpp>
#include <metrics/functional/score_values.hpp>

namespace danling::inline v0::metrics {

namespace detail {

double calibration_gap_on_host(const at::Tensor& bins, CalibrationNorm norm) {
  const double* data = bins.const_data_ptr<double>();
  double total = 0.0;
  for (std::int64_t bin = 0; bin < bins.size(0); ++bin) {
    total += data[bin * 3];
  }
  if (total == 0.0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  double out = 0.0;
  for (std::int64_t bin = 0; bin < bins.size(0); ++bin) {
    const double n = data[bin * 3];
    if (n == 0.0) {
      continue;
    }
    const double gap = std::abs(data[bin * 3 + 2] - data[bin * 3 + 1]) / n;
    switch (norm) {
      case CalibrationNorm::l1:
        out += gap * n / total;
        break;
      case CalibrationNorm::l2:
        out += gap * gap * n / total;
        break;
      case CalibrationNorm::max:
        out = out >= gap || std::isnan(out) ? out : gap;  // nan wins
        break;
    }
  }
  return norm == CalibrationNorm::l2 ? std::sqrt(out) : out;
}

at::Tensor calibration_gap_on_device(const at::Tensor& bins, CalibrationNorm norm) {
  const at::Tensor n = bins.select(1, 0);
  const at::Tensor total = n.sum();
  const at::Tensor gap = (bins.select(1, 2) - bins.select(1, 1)).abs() / n.clamp_min(1.0);
  const at::Tensor share = n / total;
  switch (norm) {
    case CalibrationNorm::l1:
      return (gap * share).sum();
    case CalibrationNorm::l2:
      return (gap * gap * share).sum().sqrt();
    case CalibrationNorm::max:
      break;
  }
  return at::where(total.eq(0), std::numeric_limits<double>::quiet_NaN(), gap.amax());
}

}  // namespace detail

namespace {

using detail::ScoreTask;

constexpr const char* calibration_where = "metrics.calibration_error";

MetricFunc calibration_metric(const ScoreTask& task, std::int64_t n_bins, CalibrationNorm norm) {
  detail::check_size(task, calibration_where);
  check<MetricError>(n_bins > 0, calibration_where, "expected a positive n_bins, got ", n_bins);
  // In the dtype of the confidence, as in torchmetrics, which converts multiclass confidences to float32.
  const at::Tensor narrow = at::linspace(0.0, 1.0, n_bins + 1, at::kFloat).to(at::kDouble);
  const at::Tensor wide = task.task == Task::binary ? at::linspace(0.0, 1.0, n_bins + 1, at::kDouble) : narrow;
  const auto sums = std::make_shared<const RunningSums>(
      RunningSums{.key = concat("calibration in ", n_bins, " bins, ", task.text()),
                  .of_batch =
                      [=](const at::Tensor& preds, const at::Tensor& targets) {
                        const auto [scores, labels] = detail::checked_scores(preds, targets, task, calibration_where);
                        const at::Tensor& limits = scores.scalar_type() == at::kFloat ? narrow : wide;
                        return scores.is_cpu() ? detail::calibration_on_host(scores, labels, task, limits)
                                               : detail::calibration_on_device(scores, labels, task, n_bins);
                      },
                  .form = RunningSums::Form{at::kDouble, {n_bins + 1, 3}}});
  MetricFunc out{.name = "calibration_error", .sums = {sums}, .higher_is_better = false};
  out.compute = [sums, norm](const MetricState& state) -> MetricValue {
    const at::Tensor bins = state.sums(sums);
    return bins.is_cpu() ? MetricValue(detail::calibration_gap_on_host(bins, norm))
                         : MetricValue(detail::calibration_gap_on_device(bins, norm));
  };
  return out;
}

}  // namespace

CalibrationNorm parse_calibration_norm(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, CalibrationNorm>, 3> names = {
      {{"l1", CalibrationNorm::l1}, {"l2", CalibrationNorm::l2}, {"max", CalibrationNorm::max}}};
  return detail::parse_name(names, name, "metrics.parse_calibration_norm");
}

MetricFunc binary_calibration_error(const CalibrationErrorOptions& options) {
  return calibration_metric({.task = Task::binary, .num = 1, .ignore_index = options.ignore_index}, options.n_bins,
                            options.norm);
}
MetricFunc multiclass_calibration_error(std::int64_t num_classes, const CalibrationErrorOptions& options) {
  return calibration_metric({.task = Task::multiclass, .num = num_classes, .ignore_index = options.ignore_index},
                            options.n_bins, options.norm);
}

at::Tensor calibration_error(const at::Tensor& input, const at::Tensor& target, const CalibrationOptions& options) {
  const ScoreTask task = detail::score_task(options.num_classes, std::nullopt, options.ignore_index, calibration_where);
  return detail::one_shot(
      calibration_metric(task, options.n_bins, options.norm),
      detail::preprocess_scores(input, target, task, options.class_dim, options.scores, calibration_where));
}

}  // namespace danling::inline v0::metrics
