#include <danling/metrics/functional/ranking.hpp>

#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/functional/ranking.hpp>
#include <metrics/functional/score_values.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0::metrics {
namespace {

using detail::RankingRow;
using detail::ScoreTask;

struct RankingMetric {
  const char* name;
  const char* where;
  RankingRow row;
};

constexpr RankingMetric auroc_metric = {"auroc", "metrics.auroc", detail::row_auroc};
constexpr RankingMetric auprc_metric = {"auprc", "metrics.auprc", detail::row_auprc};

// [num_ranking_rows, columns] from a state: exact ranks, shared by all metrics of the same task.
at::Tensor ranks_of(const MetricState& state, const ScoreTask& task, const std::string& key, const char* where) {
  return state.shared(key, [&] {
    const auto [scores, targets] = detail::checked_scores(state.preds(), state.targets(), task, where);
    return detail::rank(scores, targets, task);
  });
}

MetricValue value_of(const at::Tensor& ranks, const RankingMetric& metric, const ScoreTask& task, Average average) {
  const at::Tensor values = ranks.select(0, metric.row);
  if (task.task == Task::binary || task.flat) {
    return ranks.is_cpu() ? MetricValue(danling::detail::read_scalar(values)) : MetricValue(values.squeeze(0));
  }
  return detail::average_classes(values, ranks.select(0, detail::row_positives), average);
}

MetricFunc ranking_metric(const RankingMetric& metric, ScoreTask task, Average average,
                          std::optional<std::int64_t> thresholds) {
  detail::check_size(task, metric.where);
  check<MetricError>(task.task != Task::multiclass || average != Average::micro, metric.where,
                     "expected average macro, weighted or none for multiclass, got micro");
  task.flat = task.task == Task::multilabel && average == Average::micro;
  MetricFunc out{.name = metric.name, .higher_is_better = true};
  if (thresholds) {
    out.sums = {detail::binned_scores(task, *thresholds, metric.where)};
    out.compute = [metric, task, average, sums = out.sums[0]](const MetricState& state) {
      return value_of(detail::rank_bins(state.sums(sums)), metric, task, average);
    };
    return out;
  }
  out.preds_targets = true;
  out.compute = [metric, task, average, key = concat("ranks, ", task.text())](const MetricState& state) {
    return value_of(ranks_of(state, task, key, metric.where), metric, task, average);
  };
  return out;
}

ScoreTask ranking_task(Task task, std::int64_t num, std::optional<std::int64_t> ignore_index) {
  return {.task = task, .num = num, .ignore_index = ignore_index};
}

MetricValue scalar_value(const at::Tensor& value) {
  return value.is_cpu() ? MetricValue(danling::detail::read_scalar(value)) : MetricValue(value.squeeze(0));
}

MetricFunc partial_auroc(const ScoreTask& task, double max_fpr, std::optional<std::int64_t> thresholds) {
  check<MetricError>(max_fpr > 0.0 && max_fpr <= 1.0, auroc_metric.where, "expected max_fpr in (0, 1], got ", max_fpr);
  MetricFunc out{.name = auroc_metric.name, .higher_is_better = true};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (thresholds) {
    out.sums = {detail::binned_scores(task, *thresholds, auroc_metric.where)};
    out.compute = [max_fpr, sums = out.sums[0]](const MetricState& state) {
      const detail::BinnedCounts counts = detail::cumulate(state.sums(sums));
      const at::Tensor fpr = counts.above_negatives.div(counts.negatives.clamp_min(1).unsqueeze(1));
      const at::Tensor tpr = counts.above_positives.div(counts.positives.clamp_min(1).unsqueeze(1));
      const at::Tensor undefined = counts.has_nan.logical_or(counts.positives.add(counts.negatives).eq(0));
      return scalar_value(at::where(undefined, nan, detail::partial_area(fpr, tpr, max_fpr)));
    };
    return out;
  }
  out.preds_targets = true;
  out.compute = [task, max_fpr](const MetricState& state) {
    const auto [scores, targets] = detail::checked_scores(state.preds(), state.targets(), task, auroc_metric.where);
    if (scores.is_cpu()) {
      return MetricValue(detail::partial_auroc_on_host(scores, targets, task, max_fpr));
    }
    if (scores.numel() == 0) {
      return MetricValue(nan);
    }
    const detail::RocPoints points = detail::roc_points(scores, targets, task);
    return scalar_value(at::where(points.undefined, nan, detail::partial_area(points.fpr, points.tpr, max_fpr)));
  };
  return out;
}

at::Tensor ranking_one_shot(const RankingMetric& metric, const at::Tensor& input, const at::Tensor& target,
                            const RankingOptions& options) {
  const ScoreTask task =
      detail::score_task(options.num_classes, options.num_labels, options.ignore_index, metric.where);
  check<MetricError>(!options.max_fpr || (task.task == Task::binary && metric.row == detail::row_auroc), metric.where,
                     "expected max_fpr for binary AUROC only");
  const MetricFunc func = options.max_fpr ? partial_auroc(task, *options.max_fpr, options.thresholds)
                                          : ranking_metric(metric, task, options.average, options.thresholds);
  return detail::one_shot(
      func, detail::preprocess_scores(input, target, task, options.class_dim, options.scores, metric.where));
}

}  // namespace

MetricFunc binary_auroc(const BinaryAurocOptions& options) {
  const ScoreTask task = ranking_task(Task::binary, 1, options.ignore_index);
  return options.max_fpr ? partial_auroc(task, *options.max_fpr, options.thresholds)
                         : ranking_metric(auroc_metric, task, Average::macro, options.thresholds);
}
MetricFunc multiclass_auroc(std::int64_t num_classes, const MulticlassRankingOptions& options) {
  return ranking_metric(auroc_metric, ranking_task(Task::multiclass, num_classes, options.ignore_index),
                        options.average, options.thresholds);
}
MetricFunc multilabel_auroc(std::int64_t num_labels, const MultilabelRankingOptions& options) {
  return ranking_metric(auroc_metric, ranking_task(Task::multilabel, num_labels, options.ignore_index), options.average,
                        options.thresholds);
}

MetricFunc binary_auprc(const BinaryRankingOptions& options) {
  return ranking_metric(auprc_metric, ranking_task(Task::binary, 1, options.ignore_index), Average::macro,
                        options.thresholds);
}
MetricFunc multiclass_auprc(std::int64_t num_classes, const MulticlassRankingOptions& options) {
  return ranking_metric(auprc_metric, ranking_task(Task::multiclass, num_classes, options.ignore_index),
                        options.average, options.thresholds);
}
MetricFunc multilabel_auprc(std::int64_t num_labels, const MultilabelRankingOptions& options) {
  return ranking_metric(auprc_metric, ranking_task(Task::multilabel, num_labels, options.ignore_index), options.average,
                        options.thresholds);
}

at::Tensor auroc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options) {
  return ranking_one_shot(auroc_metric, input, target, options);
}
at::Tensor auprc(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options) {
  return ranking_one_shot(auprc_metric, input, target, options);
}
at::Tensor average_precision(const at::Tensor& input, const at::Tensor& target, const RankingOptions& options) {
  return ranking_one_shot(auprc_metric, input, target, options);
}

}  // namespace danling::inline v0::metrics
