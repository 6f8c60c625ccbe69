// Ranking results from exact scores, on the host and on devices.
#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/trapezoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <metrics/functional/ranking.hpp>
#include <metrics/functional/sorted_scores.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr double ranking_nan = std::numeric_limits<double>::quiet_NaN();

struct Ranked {
  double positives = 0.0;
  double auroc = 0.0;
  double auprc = 0.0;
};

template <class T>
Ranked rank_column(SortedScores<T> sorted) {
  const std::int64_t positives = sorted.num_positive();
  const std::int64_t negatives = sorted.size() - positives;
  if (sorted.has_nan()) {
    return {ranking_nan, ranking_nan, ranking_nan};
  }
  if (sorted.size() == 0) {
    return {0.0, ranking_nan, ranking_nan};
  }
  std::int64_t above = 0;        // positives
  std::int64_t above_all = 0;    // samples
  std::int64_t twice_pairs = 0;  // pairs of a negative and a positive above it; ties count half
  double precision_sum = 0.0;
  sorted.each_distinct([&](T, std::int64_t more_positives, std::int64_t more_negatives) {
    twice_pairs += more_negatives * (2 * above + more_positives);
    above += more_positives;
    above_all += more_positives + more_negatives;
    precision_sum += static_cast<double>(more_positives) * static_cast<double>(above) / static_cast<double>(above_all);
  });
  Ranked out{.positives = static_cast<double>(positives)};
  if (positives > 0) {
    out.auprc = precision_sum / static_cast<double>(positives);
  }
  if (positives > 0 && negatives > 0) {
    out.auroc =
        static_cast<double>(twice_pairs) / (2.0 * static_cast<double>(positives) * static_cast<double>(negatives));
  }
  return out;
}

template <class T>
double partial_auroc(SortedScores<T> sorted, double max_fpr) {
  if (sorted.has_nan() || sorted.size() == 0) {
    return ranking_nan;
  }
  const auto positives = static_cast<double>(sorted.num_positive());
  const auto negatives = static_cast<double>(sorted.size() - sorted.num_positive());
  if (positives == 0.0 || negatives == 0.0) {
    return 0.0;
  }
  // In counts, so that the area is exact up to the limit.
  std::int64_t above = 0;
  std::int64_t above_negatives = 0;
  std::int64_t twice_area = 0;
  double beyond = -1.0;  // the area of the step that the limit cuts
  sorted.each_distinct([&](T, std::int64_t more_positives, std::int64_t more_negatives) {
    if (beyond >= 0.0) {
      return;
    }
    if (static_cast<double>(above_negatives + more_negatives) / negatives <= max_fpr) {
      twice_area += more_negatives * (2 * above + more_positives);
      above += more_positives;
      above_negatives += more_negatives;
      return;
    }
    const double width = max_fpr * negatives - static_cast<double>(above_negatives);
    const double rise = static_cast<double>(more_positives) * width / static_cast<double>(more_negatives);
    beyond = width * (static_cast<double>(above) + 0.5 * rise);
  });
  const double area = (0.5 * static_cast<double>(twice_area) + std::max(beyond, 0.0)) / (positives * negatives);
  if (max_fpr >= 1.0) {
    return area;
  }
  const double least = 0.5 * max_fpr * max_fpr;
  return 0.5 * (1.0 + (area - least) / (max_fpr - least));
}

template <class T>
void rank_columns(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task, double* out) {
  const T* score_data = scores.const_data_ptr<T>();
  const auto* target_data = targets.const_data_ptr<std::int64_t>();
  const std::int64_t columns = task.columns();
  const std::int64_t size = scores.numel() / columns;
  constexpr std::int64_t grain_size = 16384;
  tensors::for_each_range(columns, std::max<std::int64_t>(1, grain_size / std::max<std::int64_t>(1, size)),
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t c = begin; c < end; ++c) {
                              const Ranked ranked = rank_column(SortedScores<T>(score_data, target_data, size,
                                                                                column_of(task, c), task.ignore_index));
                              out[row_positives * columns + c] = ranked.positives;
                              out[row_auroc * columns + c] = ranked.auroc;
                              out[row_auprc * columns + c] = ranked.auprc;
                            }
                          });
}

// See the public header: average precision of classes without positives.
void exclude_absent(double* ranks, std::int64_t columns) {
  double positives = 0.0;
  for (std::int64_t c = 0; c < columns; ++c) {
    positives += ranks[row_positives * columns + c];
  }
  if (ranks[row_positives * columns] == positives) {
    return;
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    if (ranks[row_positives * columns + c] == 0.0) {
      ranks[row_auprc * columns + c] = ranking_nan;
    }
  }
}

// 0, followed by the running sums along the last dimension.
at::Tensor sums_before(const at::Tensor& counts) {
  const at::Tensor zero = at::zeros({counts.size(0), 1}, counts.options().dtype(at::kLong));
  return at::cat({zero, counts.cumsum(1, at::kLong)}, 1);
}

struct SortedColumns {
  at::Tensor positives;         // [columns, samples], sorted by score
  at::Tensor positives_before;  // [columns, samples + 1]
  at::Tensor negatives_before;
  at::Tensor first;  // per sample: the first with the same score, and the one after the last
  at::Tensor last;
  at::Tensor has_nan;
};

SortedColumns sort_columns(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  const ColumnTensors columns = column_tensors(scores, targets, task);
  at::Tensor nan = columns.scores.isnan();
  // Binary search fails if there are nan.
  const auto [sorted, order] =
      at::sort(at::where(nan, 0.0, columns.scores).contiguous(), /*dim=*/1, /*descending=*/false);
  SortedColumns out;
  out.positives = columns.positive.gather(1, order);
  at::Tensor negatives = out.positives.logical_not();
  if (columns.counted.defined()) {
    negatives = negatives.logical_and(columns.counted.gather(1, order));
    nan = nan.logical_and(columns.counted);
  }
  out.positives_before = sums_before(out.positives);
  out.negatives_before = sums_before(negatives);
  out.first = at::searchsorted(sorted, sorted, /*out_int32=*/false, /*right=*/false);
  out.last = at::searchsorted(sorted, sorted, /*out_int32=*/false, /*right=*/true);
  out.has_nan = nan.any(1);
  return out;
}

}  // namespace

at::Tensor rank_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  at::Tensor out = at::empty({num_ranking_rows, task.columns()}, at::kDouble);
  auto* data = out.mutable_data_ptr<double>();
  if (scores.scalar_type() == at::kFloat) {
    rank_columns<float>(scores, targets, task, data);
  } else {
    rank_columns<double>(scores, targets, task, data);
  }
  if (task.task == Task::multiclass) {
    exclude_absent(data, task.columns());
  }
  return out;
}

double partial_auroc_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                             double max_fpr) {
  const auto* labels = targets.const_data_ptr<std::int64_t>();
  const ScoreColumn column = column_of(task, 0);
  return scores.scalar_type() == at::kFloat
             ? partial_auroc(SortedScores<float>(scores.const_data_ptr<float>(), labels, scores.numel(), column,
                                                 task.ignore_index),
                             max_fpr)
             : partial_auroc(SortedScores<double>(scores.const_data_ptr<double>(), labels, scores.numel(), column,
                                                  task.ignore_index),
                             max_fpr);
}

at::Tensor rank_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  const auto options = scores.options().dtype(at::kDouble);
  if (scores.numel() == 0) {
    at::Tensor none = at::full({num_ranking_rows, task.columns()}, ranking_nan, options);
    none.select(0, row_positives).zero_();
    return none;
  }
  const SortedColumns sorted = sort_columns(scores, targets, task);
  const at::Tensor positives = sorted.positives_before.select(1, -1);
  const at::Tensor negatives = sorted.negatives_before.select(1, -1);
  // For a positive: twice the number of negatives below it, ties half; and the number of samples at or above it.
  const at::Tensor twice =
      sorted.negatives_before.gather(1, sorted.first) + sorted.negatives_before.gather(1, sorted.last);
  const at::Tensor pairs = at::where(sorted.positives, twice, 0).sum(1).to(at::kDouble);
  const at::Tensor above = positives.unsqueeze(1) - sorted.positives_before.gather(1, sorted.first);
  const at::Tensor above_negatives = negatives.unsqueeze(1) - sorted.negatives_before.gather(1, sorted.first);
  const at::Tensor precision = above.to(at::kDouble) / (above + above_negatives);
  const at::Tensor precision_sum = at::where(sorted.positives, precision, 0.0).sum(1);
  const at::Tensor num_pairs = positives.to(at::kDouble) * negatives;
  const at::Tensor undefined = sorted.has_nan.logical_or((positives + negatives).eq(0));
  at::Tensor no_precision = undefined;
  if (task.task == Task::multiclass) {  // see exclude_absent
    no_precision = undefined.logical_or(positives.eq(0).logical_and(positives.select(0, 0).ne(positives.sum())));
  }
  return at::stack({at::where(sorted.has_nan, ranking_nan, positives.to(at::kDouble)),
                    at::where(undefined, ranking_nan, pairs / (2.0 * num_pairs.clamp_min(1.0))),
                    at::where(no_precision, ranking_nan, precision_sum / positives.clamp_min(1))});
}

RocPoints roc_points(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  const SortedColumns sorted = sort_columns(scores, targets, task);
  const at::Tensor positives = sorted.positives_before.select(1, -1).unsqueeze(1);
  const at::Tensor negatives = sorted.negatives_before.select(1, -1).unsqueeze(1);
  const auto rates = [&](const at::Tensor& all, const at::Tensor& before) {
    const at::Tensor zero = at::zeros({all.size(0), 1}, scores.options().dtype(at::kDouble));
    const at::Tensor above = all - before.gather(1, sorted.first);
    return at::cat({zero, above.flip(1).to(at::kDouble) / all.clamp_min(1)}, 1);
  };
  return {.fpr = rates(negatives, sorted.negatives_before),
          .tpr = rates(positives, sorted.positives_before),
          .undefined = sorted.has_nan.logical_or((positives + negatives).eq(0).squeeze(1))};
}

at::Tensor partial_area(const at::Tensor& fpr, const at::Tensor& tpr, double max_fpr) {
  const at::Tensor whole = at::trapezoid(tpr, fpr, -1);
  if (max_fpr >= 1.0) {
    return whole;
  }
  // The first point beyond; a curve that stays at 0 has none.
  const at::Tensor limit = at::full({fpr.size(0), 1}, max_fpr, fpr.options());
  const at::Tensor stop = at::searchsorted(fpr, limit, /*out_int32=*/false, /*right=*/true).clamp(1, fpr.size(1) - 1);
  const at::Tensor left = fpr.gather(1, stop - 1);
  const at::Tensor gap = fpr.gather(1, stop) - left;
  const at::Tensor weight = at::where(gap.eq(0), 0.0, (limit - left) / gap);
  const at::Tensor tpr_left = tpr.gather(1, stop - 1);
  const at::Tensor cut = tpr_left + weight * (tpr.gather(1, stop) - tpr_left);
  const at::Tensor inside = fpr.le(limit);
  // The points beyond collapse to the limit and add no area.
  const at::Tensor area = at::trapezoid(at::where(inside, tpr, cut), at::where(inside, fpr, limit), -1);
  const double least = 0.5 * max_fpr * max_fpr;
  const at::Tensor standard = 0.5 * (1.0 + (area - least) / (max_fpr - least));
  return at::where(fpr.sum(-1).eq(0).logical_or(tpr.sum(-1).eq(0)), whole, standard);
}

}  // namespace danling::inline v0::metrics::detail
