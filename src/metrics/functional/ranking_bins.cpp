// Ranking results from scores counted above even thresholds.
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/trapezoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <danling/core/error.hpp>

#include <metrics/functional/ranking.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr double bins_nan = std::numeric_limits<double>::quiet_NaN();

template <class T>
void count_columns(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                   const at::Tensor& thresholds, std::int64_t* counts) {
  const auto* limits = thresholds.const_data_ptr<float>();
  const std::int64_t num = thresholds.numel();
  const auto last = static_cast<double>(num - 1);
  const std::int64_t columns = task.columns();
  const std::int64_t size = scores.numel() / columns;
  for (std::int64_t c = 0; c < columns; ++c) {
    const ScoreColumn column = column_of(task, c);
    const T* score_data = scores.const_data_ptr<T>() + column.offset;
    const auto* target_data = targets.const_data_ptr<std::int64_t>() + column.target_offset;
    std::int64_t* bins = counts + c * (num + 2) * 2;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t target = target_data[i * column.target_stride];
      if (task.ignore_index && target == *task.ignore_index) {
        continue;
      }
      const auto score = static_cast<double>(score_data[i * column.stride]);
      // An estimate; rounding may shift it by one.
      std::int64_t reached = num + 1;
      if (!std::isnan(score)) [[likely]] {
        reached = static_cast<std::int64_t>(std::clamp(score, 0.0, 1.0) * last) + 1;
        for (; reached < num && score >= static_cast<double>(limits[reached]); ++reached) {
        }
        for (; reached > 0 && score < static_cast<double>(limits[reached - 1]); --reached) {
        }
      }
      ++bins[reached * 2 + (target == column.positive ? 1 : 0)];
    }
  }
}

}  // namespace

at::Tensor even_thresholds(std::int64_t num) { return at::linspace(0.0, 1.0, num, at::kFloat); }

RunningSumsPtr binned_scores(const ScoreTask& task, std::int64_t thresholds, std::string_view where) {
  check<MetricError>(thresholds >= 2, where, "expected at least 2 thresholds, got ", thresholds);
  return std::make_shared<const RunningSums>(
      RunningSums{.key = concat("scores above ", thresholds, " thresholds, ", task.text()),
                  .of_batch =
                      [task, limits = even_thresholds(thresholds), name = std::string(where)](
                          const at::Tensor& preds, const at::Tensor& targets) {
                        const auto [scores, labels] = checked_scores(preds, targets, task, name);
                        return scores.is_cpu() ? bin_on_host(scores, labels, task, limits)
                                               : bin_on_device(scores, labels, task, limits);
                      },
                  .form = RunningSums::Form{at::kLong, {task.columns(), thresholds + 2, 2}}});
}

at::Tensor bin_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                       const at::Tensor& thresholds) {
  at::Tensor counts = at::zeros({task.columns(), thresholds.numel() + 2, 2}, at::kLong);
  auto* data = counts.mutable_data_ptr<std::int64_t>();
  if (scores.scalar_type() == at::kFloat) {
    count_columns<float>(scores, targets, task, thresholds, data);
  } else {
    count_columns<double>(scores, targets, task, thresholds, data);
  }
  return counts;
}

at::Tensor bin_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                         const at::Tensor& thresholds) {
  const ColumnTensors columns = column_tensors(scores, targets, task);
  const std::int64_t num = thresholds.numel();
  // Created here: a copy from the host might wait.
  const at::Tensor limits = at::linspace(0.0, 1.0, num, scores.options().dtype(at::kFloat)).to(scores.scalar_type());
  at::Tensor reached = at::bucketize(columns.scores.contiguous(), limits, /*out_int32=*/false, /*right=*/true);
  reached = at::where(columns.scores.isnan(), num + 1, reached);
  const at::Tensor offsets = at::arange(task.columns(), targets.options()).unsqueeze(1) * ((num + 2) * 2);
  const at::Tensor bins = reached * 2 + columns.positive.to(at::kLong) + offsets;
  at::Tensor ones = at::ones_like(bins);
  if (columns.counted.defined()) {
    ones = columns.counted.to(at::kLong);
  }
  return at::zeros({task.columns() * (num + 2) * 2}, targets.options())
      .scatter_add_(0, bins.flatten(), ones.flatten())
      .view({task.columns(), num + 2, 2});
}

BinnedCounts cumulate(const at::Tensor& bins) {
  const std::int64_t num = bins.size(1) - 2;
  const at::Tensor above = bins.narrow(1, 1, num).flip(1).cumsum(1).to(at::kDouble);
  const at::Tensor all = bins.sum(1).to(at::kDouble);
  return {.above_positives = above.select(2, 1),
          .above_negatives = above.select(2, 0),
          .positives = all.select(1, 1),
          .negatives = all.select(1, 0),
          .has_nan = bins.select(1, num + 1).sum(1).gt(0)};
}

at::Tensor rank_bins_on_host(const at::Tensor& bins) {
  const at::Tensor contiguous = bins.contiguous();
  const auto* counts = contiguous.const_data_ptr<std::int64_t>();
  const std::int64_t columns = bins.size(0);
  const std::int64_t num = bins.size(1) - 2;
  at::Tensor out = at::empty({num_ranking_rows, columns}, at::kDouble);
  auto* data = out.mutable_data_ptr<double>();
  for (std::int64_t c = 0; c < columns; ++c, counts += (num + 2) * 2) {
    std::int64_t negatives = 0;
    std::int64_t positives = 0;
    for (std::int64_t bin = 0; bin < num + 2; ++bin) {
      negatives += counts[bin * 2];
      positives += counts[bin * 2 + 1];
    }
    const bool has_nan = counts[(num + 1) * 2] + counts[(num + 1) * 2 + 1] > 0;
    data[row_positives * columns + c] = has_nan ? bins_nan : static_cast<double>(positives);
    if (has_nan || negatives + positives == 0) {
      data[row_auroc * columns + c] = bins_nan;
      data[row_auprc * columns + c] = bins_nan;
      continue;
    }
    // The highest threshold is the first point of the curve: the area before it does not count, as in torchmetrics.
    std::int64_t below_negatives = counts[num * 2];
    std::int64_t above = counts[num * 2 + 1];
    std::int64_t twice_pairs = 0;
    double precision_sum = above == 0 ? 0.0
                                      : static_cast<double>(above) * static_cast<double>(above) /
                                            static_cast<double>(above + below_negatives);
    for (std::int64_t bin = num - 1; bin > 0; --bin) {
      const std::int64_t more_negatives = counts[bin * 2];
      const std::int64_t more = counts[bin * 2 + 1];
      twice_pairs += more_negatives * (2 * above + more);
      above += more;
      below_negatives += more_negatives;
      if (more > 0) {
        precision_sum +=
            static_cast<double>(more) * static_cast<double>(above) / static_cast<double>(above + below_negatives);
      }
    }
    const auto all_positives = static_cast<double>(std::max<std::int64_t>(1, positives));
    const auto all_negatives = static_cast<double>(std::max<std::int64_t>(1, negatives));
    data[row_auroc * columns + c] = static_cast<double>(twice_pairs) / (2.0 * all_positives * all_negatives);
    data[row_auprc * columns + c] = precision_sum / all_positives;
  }
  return out;
}

at::Tensor rank_bins_on_device(const at::Tensor& bins) {
  const BinnedCounts counts = cumulate(bins);
  const at::Tensor positives = counts.positives.clamp_min(1).unsqueeze(1);
  const at::Tensor negatives = counts.negatives.clamp_min(1).unsqueeze(1);
  const at::Tensor tpr = counts.above_positives / positives;
  const at::Tensor area = at::trapezoid(tpr, counts.above_negatives / negatives, -1);
  const at::Tensor precision = counts.above_positives / (counts.above_positives + counts.above_negatives).clamp_min(1);
  const at::Tensor gained = tpr.diff(1, -1, at::zeros_like(positives));
  const at::Tensor undefined = counts.has_nan.logical_or((counts.positives + counts.negatives).eq(0));
  return at::stack({at::where(counts.has_nan, bins_nan, counts.positives), at::where(undefined, bins_nan, area),
                    at::where(undefined, bins_nan, (gained * precision).sum(1))});
}

}  // namespace danling::inline v0::metrics::detail
