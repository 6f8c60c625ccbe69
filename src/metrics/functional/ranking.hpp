// Counting pairs and positives of sorted or binned scores, for AUROC, average precision and curves.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

#include <metrics/functional/score_columns.hpp>

namespace danling::inline v0::metrics::detail {

/// Rows of ranking results, one column per class.
enum RankingRow : std::int64_t {
  row_positives,  ///< nan if a score is nan
  row_auroc,
  row_auprc,
  num_ranking_rows
};

/// [num_ranking_rows, columns], float64, from exact scores: on the host by one sort per column, on a device by
/// LibTorch's sort without waiting. Input: the result of `checked_scores`.
at::Tensor rank_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task);
at::Tensor rank_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task);
inline at::Tensor rank(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  return scores.is_cpu() ? rank_on_host(scores, targets, task) : rank_on_device(scores, targets, task);
}

/// The area under one exact ROC curve up to `max_fpr`, as `partial_area`; nan for a nan score or without counted
/// samples.
double partial_auroc_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                             double max_fpr);

/// Points of the exact ROC curves, [columns, samples + 1], from (0, 0), without waiting: samples with equal scores and
/// ignored samples repeat a point.
struct RocPoints {
  at::Tensor fpr;
  at::Tensor tpr;
  /// Per column: true if a score is nan or no sample counts.
  at::Tensor undefined;
};
RocPoints roc_points(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task);

/// The area up to `max_fpr` under each curve, standardized (McClish); the whole area if it is 0. Never waits.
at::Tensor partial_area(const at::Tensor& fpr, const at::Tensor& tpr, double max_fpr);

// Binned scores: int64 counts [columns, thresholds + 2, 2] by the number of thresholds that a score reaches (from 0 to
// all; last: nan) and by its label.

/// The thresholds in float32, as torch.linspace returns them.
at::Tensor even_thresholds(std::int64_t num);
RunningSumsPtr binned_scores(const ScoreTask& task, std::int64_t thresholds, std::string_view where);
at::Tensor bin_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                       const at::Tensor& thresholds);
at::Tensor bin_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                         const at::Tensor& thresholds);

/// Positives and negatives at or above each threshold, highest threshold first: float64 [columns, thresholds]; and
/// their totals.
struct BinnedCounts {
  at::Tensor above_positives;
  at::Tensor above_negatives;
  at::Tensor positives;
  at::Tensor negatives;
  at::Tensor has_nan;
};
BinnedCounts cumulate(const at::Tensor& bins);

/// Ranking results, as above, from binned scores.
at::Tensor rank_bins_on_host(const at::Tensor& bins);
at::Tensor rank_bins_on_device(const at::Tensor& bins);
inline at::Tensor rank_bins(const at::Tensor& bins) {
  return bins.is_cpu() ? rank_bins_on_host(bins) : rank_bins_on_device(bins);
}

}  // namespace danling::inline v0::metrics::detail
