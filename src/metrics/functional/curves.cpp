#include <danling/metrics/functional/curves.hpp>

#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
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

// Positives and negatives at or above each distinct score, from the highest.
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

// The steps of all classes, on the host.
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

// `absent`: the recall of a class without positives.
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

detail::BinnedCounts binned(const Request& request, std::int64_t thresholds, const char* where) {
  const RunningSumsPtr sums = detail::binned_scores(request.task, thresholds, where);
  return detail::cumulate(sums->of_batch(request.data.first, request.data.second));
}

at::Tensor thresholds_of(std::int64_t num, const at::Tensor& like) {
  return at::linspace(0.0, 1.0, num, like.options().dtype(at::kFloat)).to(at::kDouble);
}

}  // namespace

std::vector<RocCurve> roc(const at::Tensor& input, const at::Tensor& target, const CurveOptions& options) {
  constexpr const char* where = "metrics.roc";
  const c10::NoGradGuard no_grad;
  const Request request = request_of(input, target, options, where);
  std::vector<RocCurve> out;
  if (!options.thresholds) {
    for (const Steps& steps : all_steps(request.data, request.task, where)) {
      out.push_back(exact_roc(steps, request.device));
    }
    return out;
  }
  const detail::BinnedCounts counts = binned(request, *options.thresholds, where);
  const auto rates = [&](const at::Tensor& above, const at::Tensor& all) {
    return at::where(counts.has_nan.unsqueeze(1), curve_nan, above.div(all.clamp_min(1).unsqueeze(1)));
  };
  const at::Tensor fpr = rates(counts.above_negatives, counts.negatives);
  const at::Tensor tpr = rates(counts.above_positives, counts.positives);
  for (std::int64_t c = 0; c < request.task.columns(); ++c) {
    out.push_back({fpr.select(0, c), tpr.select(0, c), thresholds_of(*options.thresholds, fpr).flip(0)});
  }
  return out;
}

std::vector<PrecisionRecallCurve> precision_recall_curve(const at::Tensor& input, const at::Tensor& target,
                                                         const CurveOptions& options) {
  constexpr const char* where = "metrics.precision_recall_curve";
  const c10::NoGradGuard no_grad;
  const Request request = request_of(input, target, options, where);
  std::vector<PrecisionRecallCurve> out;
  if (!options.thresholds) {
    const std::vector<Steps> steps = all_steps(request.data, request.task, where);
    const bool only_first = steps[0].negatives.empty() || steps[0].negatives.back() == 0.0;
    const double absent = request.task.task == Task::multiclass && !only_first ? curve_nan : 1.0;
    for (const Steps& of_class : steps) {
      out.push_back(exact_precision_recall(of_class, absent, request.device));
    }
    return out;
  }
  const detail::BinnedCounts counts = binned(request, *options.thresholds, where);
  const at::Tensor nan = counts.has_nan.unsqueeze(1);
  const auto rising = [&](const at::Tensor& values, double end) {
    const at::Tensor last = at::ones({values.size(0), 1}, values.options()).mul(end);
    return at::cat({at::where(nan, curve_nan, values.flip(1)), last}, 1);
  };
  const at::Tensor precision =
      rising(counts.above_positives.div(counts.above_positives.add(counts.above_negatives)), 1.0);
  const at::Tensor recall = rising(counts.above_positives.div(counts.positives.unsqueeze(1)), 0.0);
  for (std::int64_t c = 0; c < request.task.columns(); ++c) {
    out.push_back({precision.select(0, c), recall.select(0, c), thresholds_of(*options.thresholds, precision)});
  }
  return out;
}

}  // namespace danling::inline v0::metrics
