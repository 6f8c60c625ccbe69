#include <danling/metrics/functional/curves.hpp>

#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/functional/ranking.hpp>
#include <metrics/functional/score_values.hpp>
#include <metrics/functional/sorted_scores.hpp>

namespace danling::inline v0::metrics {
namespace {

using detail::ScoreTask;

constexpr double curve_nan = std::numeric_limits<double>::quiet_NaN();

// Positives and negatives at or above each distinct score, highest score first.
struct Steps {
  std::vector<double> scores;
  std::vector<double> positives;
  std::vector<double> negatives;
  bool has_nan = false;
};

template <class T>
Steps steps_of(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task, std::int64_t column) {
  detail::SortedScores<T> sorted(scores.const_data_ptr<T>(), targets.const_data_ptr<std::int64_t>(),
                                 scores.numel() / task.columns(), detail::column_of(task, column), task.ignore_index);
  Steps out;
  out.has_nan = sorted.has_nan();
  std::int64_t positives = 0;
  std::int64_t negatives = 0;
  sorted.each_distinct([&](T score, std::int64_t more_positives, std::int64_t more_negatives) {
    positives += more_positives;
    negatives += more_negatives;
    out.scores.push_back(static_cast<double>(score));
    out.positives.push_back(static_cast<double>(positives));
    out.negatives.push_back(static_cast<double>(negatives));
  });
  return out;
}

at::Tensor to_tensor(const std::vector<double>& values, at::Device device) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<double>());
  return out.to(device);
}

// The steps of all classes, computed on the host.
std::vector<Steps> all_steps(const std::pair<at::Tensor, at::Tensor>& data, const ScoreTask& task, const char* where) {
  const auto [scores, targets] = detail::checked_scores(data.first.cpu(), data.second.cpu(), task, where);
  std::vector<Steps> out;
  for (std::int64_t c = 0; c < task.columns(); ++c) {
    out.push_back(scores.scalar_type() == at::kFloat ? steps_of<float>(scores, targets, task, c)
                                                     : steps_of<double>(scores, targets, task, c));
  }
  return out;
}

RocCurve exact_roc(const Steps& steps, at::Device device) {
  const std::size_t n = steps.scores.size();
  std::vector<double> fpr(n + 1, 0.0);
  std::vector<double> tpr(n + 1, 0.0);
  std::vector<double> thresholds(n + 1, 1.0);
  const double positives = n > 0 ? steps.positives.back() : 0.0;
  const double negatives = n > 0 ? steps.negatives.back() : 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    fpr[i + 1] = negatives > 0.0 ? steps.negatives[i] / negatives : 0.0;
    tpr[i + 1] = positives > 0.0 ? steps.positives[i] / positives : 0.0;
    thresholds[i + 1] = steps.scores[i];
  }
  if (steps.has_nan) {
    fpr.assign(n + 1, curve_nan);
    tpr.assign(n + 1, curve_nan);
  }
  return {to_tensor(fpr, device), to_tensor(tpr, device), to_tensor(thresholds, device)};
}

// `absent`: recall of a class without positives.
PrecisionRecallCurve exact_precision_recall(const Steps& steps, double absent, at::Device device) {
  const std::size_t n = steps.scores.size();
  std::vector<double> precision(n + 1, 1.0);
  std::vector<double> recall(n + 1, 0.0);
  std::vector<double> thresholds(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t from = n - 1 - i;
    precision[i] = steps.positives[from] / (steps.positives[from] + steps.negatives[from]);
    recall[i] = steps.positives.back() > 0.0 ? steps.positives[from] / steps.positives.back() : absent;
    thresholds[i] = steps.scores[from];
  }
  if (steps.has_nan) {
    precision.assign(n + 1, curve_nan);
    recall.assign(n + 1, curve_nan);
  }
  return {to_tensor(precision, device), to_tensor(recall, device), to_tensor(thresholds, device)};
}

struct Request {
  ScoreTask task;
  std::pair<at::Tensor, at::Tensor> data;
  at::Device device;
};

Request request_of(const at::Tensor& input, const at::Tensor& target, const CurveOptions& options, const char* where) {
  const ScoreTask task = detail::score_task(options.num_classes, options.num_labels, options.ignore_index, where);
  return {task, detail::preprocess_scores(input, target, task, options.class_dim, options.scores, where),
          target.device()};
}

at::Tensor thresholds_of(std::int64_t num, const at::Tensor& like) {
  return at::linspace(0.0, 1.0, num, like.options().dtype(at::kFloat)).to(at::kDouble);
}

std::vector<RocCurve> exact_rocs(const std::vector<Steps>& steps, at::Device device) {
  std::vector<RocCurve> out;
  for (const Steps& of_class : steps) {
    out.push_back(exact_roc(of_class, device));
  }
  return out;
}

std::vector<RocCurve> binned_rocs(const at::Tensor& bins) {
  const detail::BinnedCounts counts = detail::cumulate(bins);
  const auto rates = [&](const at::Tensor& above, const at::Tensor& all) {
    return at::where(counts.has_nan.unsqueeze(1), curve_nan, above.div(all.clamp_min(1).unsqueeze(1)));
  };
  const at::Tensor fpr = rates(counts.above_negatives, counts.negatives);
  const at::Tensor tpr = rates(counts.above_positives, counts.positives);
  std::vector<RocCurve> out;
  for (std::int64_t c = 0; c < fpr.size(0); ++c) {
    out.push_back({fpr.select(0, c), tpr.select(0, c), thresholds_of(fpr.size(1), fpr).flip(0)});
  }
  return out;
}

std::vector<PrecisionRecallCurve> exact_precision_recalls(const std::vector<Steps>& steps, Task task,
                                                          at::Device device) {
  const bool only_first = steps[0].negatives.empty() || steps[0].negatives.back() == 0.0;
  const double absent = task == Task::multiclass && !only_first ? curve_nan : 1.0;
  std::vector<PrecisionRecallCurve> out;
  for (const Steps& of_class : steps) {
    out.push_back(exact_precision_recall(of_class, absent, device));
  }
  return out;
}

std::vector<PrecisionRecallCurve> binned_precision_recalls(const at::Tensor& bins) {
  const detail::BinnedCounts counts = detail::cumulate(bins);
  const at::Tensor nan = counts.has_nan.unsqueeze(1);
  const auto rising = [&](const at::Tensor& values, double end) {
    const at::Tensor last = at::ones({values.size(0), 1}, values.options()).mul(end);
    return at::cat({at::where(nan, curve_nan, values.flip(1)), last}, 1);
  };
  const at::Tensor precision =
      rising(counts.above_positives.div(counts.above_positives.add(counts.above_negatives)), 1.0);
  const at::Tensor recall = rising(counts.above_positives.div(counts.positives.unsqueeze(1)), 0.0);
  std::vector<PrecisionRecallCurve> out;
  for (std::int64_t c = 0; c < precision.size(0); ++c) {
    out.push_back(
        {precision.select(0, c), recall.select(0, c), thresholds_of(counts.above_positives.size(1), precision)});
  }
  return out;
}

at::Tensor rows_of(const RocCurve& curve) { return at::stack({curve.fpr, curve.tpr, curve.thresholds}); }
at::Tensor rows_of(const PrecisionRecallCurve& curve) {
  const at::Tensor none = at::full({1}, curve_nan, curve.thresholds.options());
  return at::stack({curve.precision, curve.recall, at::cat({curve.thresholds, none})});
}

// [3, points], or [classes, 3, points].
template <class Curve>
at::Tensor rows_of(const std::vector<Curve>& curves, Task task) {
  if (task == Task::binary) {
    return rows_of(curves.front());
  }
  std::vector<at::Tensor> rows;
  for (const Curve& curve : curves) {
    rows.push_back(rows_of(curve));
  }
  return at::stack(rows);
}

// `exact` takes steps, a task and a device; `binned` takes the counts of binned_scores.
template <class Exact, class Binned>
MetricFunc curve_metric(const char* name, const char* where, const ScoreTask& task, const CurveMetricOptions& options,
                        Exact exact, Binned binned) {
  detail::check_size(task, where);
  MetricFunc out{.name = name};
  if (options.thresholds) {
    const RunningSumsPtr sums = detail::binned_scores(task, *options.thresholds, where);
    out.sums = {sums};
    out.compute = [sums, task, binned](const MetricState& state) -> MetricValue {
      const at::Tensor bins = state.sums(sums);
      return rows_of(binned(bins), task.task).masked_fill(bins.sum().eq(0), curve_nan);
    };
    return out;
  }
  check<MetricError>(task.task == Task::binary, where,
                     "expected thresholds for several curves, since exact ones differ in length, got none");
  out.preds_targets = true;
  out.compute = [=](const MetricState& state) -> MetricValue {
    const at::Device device = state.preds().device();
    const std::vector<Steps> steps = all_steps({state.preds(), state.targets()}, task, where);
    const at::Tensor rows = rows_of(exact(steps, task.task, device), task.task);
    return steps.front().scores.empty() ? at::full_like(rows, curve_nan) : rows;
  };
  return out;
}

constexpr const char* roc_where = "metrics.roc";
constexpr const char* precision_recall_where = "metrics.precision_recall_curve";

MetricFunc roc_metric(Task task, std::int64_t num, const CurveMetricOptions& options) {
  return curve_metric(
      "roc", roc_where, {.task = task, .num = num, .ignore_index = options.ignore_index}, options,
      [](const std::vector<Steps>& steps, Task, at::Device device) { return exact_rocs(steps, device); }, binned_rocs);
}

MetricFunc precision_recall_metric(Task task, std::int64_t num, const CurveMetricOptions& options) {
  return curve_metric("precision_recall_curve", precision_recall_where,
                      {.task = task, .num = num, .ignore_index = options.ignore_index}, options,
                      exact_precision_recalls, binned_precision_recalls);
}

at::Tensor bins_of(const Request& request, std::int64_t thresholds, const char* where) {
  return detail::binned_scores(request.task, thresholds, where)->of_batch(request.data.first, request.data.second);
}

}  // namespace

std::vector<RocCurve> roc(const at::Tensor& input, const at::Tensor& target, const CurveOptions& options) {
  const c10::NoGradGuard no_grad;
  const Request request = request_of(input, target, options, roc_where);
  return options.thresholds ? binned_rocs(bins_of(request, *options.thresholds, roc_where))
                            : exact_rocs(all_steps(request.data, request.task, roc_where), request.device);
}

std::vector<PrecisionRecallCurve> precision_recall_curve(const at::Tensor& input, const at::Tensor& target,
                                                         const CurveOptions& options) {
  const c10::NoGradGuard no_grad;
  const Request request = request_of(input, target, options, precision_recall_where);
  return options.thresholds ? binned_precision_recalls(bins_of(request, *options.thresholds, precision_recall_where))
                            : exact_precision_recalls(all_steps(request.data, request.task, precision_recall_where),
                                                      request.task.task, request.device);
}

MetricFunc binary_roc(const CurveMetricOptions& options) { return roc_metric(Task::binary, 1, options); }
MetricFunc multiclass_roc(std::int64_t num_classes, const CurveMetricOptions& options) {
  return roc_metric(Task::multiclass, num_classes, options);
}
MetricFunc multilabel_roc(std::int64_t num_labels, const CurveMetricOptions& options) {
  return roc_metric(Task::multilabel, num_labels, options);
}
MetricFunc binary_precision_recall_curve(const CurveMetricOptions& options) {
  return precision_recall_metric(Task::binary, 1, options);
}
MetricFunc multiclass_precision_recall_curve(std::int64_t num_classes, const CurveMetricOptions& options) {
  return precision_recall_metric(Task::multiclass, num_classes, options);
}
MetricFunc multilabel_precision_recall_curve(std::int64_t num_labels, const CurveMetricOptions& options) {
  return precision_recall_metric(Task::multilabel, num_labels, options);
}

}  // namespace danling::inline v0::metrics
