#include <danling/metrics/functional/mcc.hpp>

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include <metrics/functional/agreement.hpp>
#include <metrics/functional/one_shot.hpp>

namespace danling::inline v0::metrics {
namespace detail {
namespace {

// torchmetrics' epsilon: that of float32.
constexpr double mcc_epsilon = 1.0 / (1 << 23);

// Limit for two classes when the formula is 0 / 0.
double mcc_at_limit(double tn, double fp, double fn, double tp) {
  const double difference = fn == 0 && tn == 0   ? tp - fp
                            : fp == 0 && tn == 0 ? tp - fn
                            : tp == 0 && fn == 0 ? tn - fp
                                                 : tn - fn;
  return std::sqrt(mcc_epsilon) * difference /
         std::sqrt((tp + fp + mcc_epsilon) * (tp + fn + mcc_epsilon) * (tn + fp + mcc_epsilon) *
                   (tn + fn + mcc_epsilon));
}

}  // namespace

double mcc_on_host(const at::Tensor& class_counts) {
  const std::int64_t size = class_counts.size(1);
  const auto* right = class_counts.const_data_ptr<std::int64_t>();
  const auto* predicted = right + size;
  const auto* of_target = predicted + size;
  double correct = 0.0;
  double items = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    correct += static_cast<double>(right[i]);
    items += static_cast<double>(predicted[i]);
  }
  if (items == 0.0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (size == 2 && correct == items) {
    return 1.0;
  }
  if (size == 2 && correct == 0.0) {
    return -1.0;
  }
  // Summed by class, since items² and the number subtracted from it are close when one class has nearly all items.
  double variance_predicted = 0.0;
  double variance_target = 0.0;
  double covariance = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto r = static_cast<double>(right[i]);
    const auto p = static_cast<double>(predicted[i]);
    const auto t = static_cast<double>(of_target[i]);
    variance_predicted += p * (items - p);
    variance_target += t * (items - t);
    covariance += r * (items - p - t + r) - (p - r) * (t - r);
  }
  if (variance_predicted > 0.0 && variance_target > 0.0) {
    return covariance / (std::sqrt(variance_predicted) * std::sqrt(variance_target));
  }
  if (size > 2) {
    return 0.0;
  }
  const auto tp = static_cast<double>(right[1]);
  return mcc_at_limit(static_cast<double>(right[0]), static_cast<double>(predicted[1]) - tp,
                      static_cast<double>(of_target[1]) - tp, tp);
}

at::Tensor mcc_on_device(const at::Tensor& class_counts) {
  const at::Tensor exact = class_counts.to(at::kDouble);
  const at::Tensor predicted = exact[1];
  const at::Tensor of_target = exact[2];
  const at::Tensor correct = exact[0].sum();
  const at::Tensor items = predicted.sum();
  const at::Tensor variance_predicted = (predicted * (items - predicted)).sum();
  const at::Tensor variance_target = (of_target * (items - of_target)).sum();
  const at::Tensor covariance =
      (exact[0] * (items - predicted - of_target + exact[0]) - (predicted - exact[0]) * (of_target - exact[0])).sum();
  const at::Tensor spread = variance_predicted.sqrt() * variance_target.sqrt();
  at::Tensor value = covariance / spread;
  if (class_counts.size(1) > 2) {
    value = value.masked_fill(spread.eq(0), 0.0);
  } else {
    const at::Tensor tn = exact[0][0];
    const at::Tensor tp = exact[0][1];
    const at::Tensor fp = predicted[1] - tp;
    const at::Tensor fn = of_target[1] - tp;
    const auto none = [](const at::Tensor& a, const at::Tensor& b) { return (a + b).eq(0); };
    const at::Tensor difference =
        at::where(none(fn, tn), tp - fp, at::where(none(fp, tn), tp - fn, at::where(none(tp, fn), tn - fp, tn - fn)));
    const at::Tensor product =
        (tp + fp + mcc_epsilon) * (tp + fn + mcc_epsilon) * (tn + fp + mcc_epsilon) * (tn + fn + mcc_epsilon);
    value = at::where(spread.eq(0), difference * std::sqrt(mcc_epsilon) / product.sqrt(), value);
    value = value.masked_fill(correct.eq(0), -1.0).masked_fill(correct.eq(items), 1.0);
  }
  return value.masked_fill(items.eq(0), std::numeric_limits<double>::quiet_NaN());
}

namespace {

MetricValue mcc_of(const at::Tensor& class_counts) {
  return class_counts.is_cpu() ? MetricValue(mcc_on_host(class_counts)) : MetricValue(mcc_on_device(class_counts));
}

MetricFunc mcc_of_labels(const LabelRule& rule) {
  const RunningSumsPtr sums = label_sums(rule);
  return {.name = "mcc", .sums = {sums}, .higher_is_better = true, .compute = [=](const MetricState& state) {
            return mcc_of(two_class_counts(state.sums(sums)));
          }};
}

}  // namespace
}  // namespace detail

MetricFunc binary_mcc(const BinaryOptions& options) { return detail::mcc_of_labels(detail::label_rule(options)); }

MetricFunc multiclass_mcc(std::int64_t num_classes, std::optional<std::int64_t> ignore_index) {
  const RunningSumsPtr sums = detail::class_sums(detail::class_rule(num_classes, ignore_index));
  return {.name = "mcc",
          .sums = {sums},
          .labels_only = true,
          .higher_is_better = true,
          .compute = [=](const MetricState& state) { return detail::mcc_of(state.sums(sums)); }};
}

MetricFunc multilabel_mcc(std::int64_t num_labels, const BinaryOptions& options) {
  return detail::mcc_of_labels(detail::label_rule(options, num_labels));
}

MetricFunc mcc(const ClassificationOptions& options) {
  detail::check_plain(options, "mcc.create");
  switch (task_of(options)) {
    case Task::multiclass:
      return multiclass_mcc(*options.num_classes, options.ignore_index);
    case Task::multilabel:
      return multilabel_mcc(*options.num_labels, detail::binary_options(options));
    default:
      return binary_mcc(detail::binary_options(options));
  }
}

at::Tensor mcc(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options) {
  return detail::value_once(mcc(options), input, target, options);
}

}  // namespace danling::inline v0::metrics
