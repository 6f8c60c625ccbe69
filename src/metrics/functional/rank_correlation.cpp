#include <metrics/functional/rank_correlation.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <metrics/functional/score_columns.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr double rank_nan = std::numeric_limits<double>::quiet_NaN();

using Pairs = std::vector<std::pair<double, double>>;  // prediction, target

// The samples of one output that count; nothing when a prediction is nan.
bool read_pairs(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs, std::int64_t output,
                Pairs& out) {
  const auto* pred = preds.const_data_ptr<double>();
  const auto* target = targets.const_data_ptr<double>();
  const std::int64_t rows = preds.numel() / num_outputs;
  out.clear();
  out.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    bool there = true;
    for (std::int64_t k = 0; k < num_outputs; ++k) {
      there &= !std::isnan(target[i * num_outputs + k]);
    }
    if (there) {
      if (std::isnan(pred[i * num_outputs + output])) {
        return false;
      }
      out.emplace_back(pred[i * num_outputs + output], target[i * num_outputs + output]);
    }
  }
  return true;
}

template <class Value>
at::Tensor by_column(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs, Value value) {
  const at::Tensor pred = preds.to(at::kDouble).contiguous();
  const at::Tensor target = targets.to(at::kDouble).contiguous();
  at::Tensor out = host_vector(num_outputs);
  auto* data = out.mutable_data_ptr<double>();
  Pairs pairs;
  for (std::int64_t k = 0; k < num_outputs; ++k) {
    const bool ranked = read_pairs(pred, target, num_outputs, k, pairs) && !pairs.empty();
    data[k] = ranked ? value(pairs) : rank_nan;
  }
  return out;
}

// Twice the rank minus the mean rank, an integer: ties share their mean.
std::vector<double> centered_ranks(const Pairs& pairs, double std::pair<double, double>::*member) {
  const std::size_t n = pairs.size();
  std::vector<std::pair<double, std::uint32_t>> order(n);
  for (std::size_t i = 0; i < n; ++i) {
    order[i] = {pairs[i].*member, static_cast<std::uint32_t>(i)};
  }
  std::sort(order.begin(), order.end());
  std::vector<double> out(n);
  for (std::size_t begin = 0; begin < n;) {
    std::size_t end = begin + 1;
    while (end < n && order[end].first == order[begin].first) {
      ++end;
    }
    const double rank = static_cast<double>(begin + end) - static_cast<double>(n);
    for (; begin < end; ++begin) {
      out[order[begin].second] = rank;
    }
  }
  return out;
}

double spearman_of(const Pairs& pairs) {
  const std::vector<double> x = centered_ranks(pairs, &std::pair<double, double>::first);
  const std::vector<double> y = centered_ranks(pairs, &std::pair<double, double>::second);
  double xx = 0.0;
  double yy = 0.0;
  double xy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += x[i] * x[i];
    yy += y[i] * y[i];
    xy += x[i] * y[i];
  }
  return xx == 0.0 || yy == 0.0 ? 0.0 : std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
}

// Pairs among equal neighbours, and how many runs of them there are.
template <class Items, class Equal>
std::pair<double, double> tied_pairs(const Items& items, Equal equal) {
  double tied = 0.0;
  double runs = 0.0;
  for (std::size_t begin = 0; begin < items.size(); runs += 1.0) {
    std::size_t end = begin + 1;
    while (end < items.size() && equal(items[begin], items[end])) {
      ++end;
    }
    const auto size = static_cast<double>(end - begin);
    tied += size * (size - 1.0) / 2.0;
    begin = end;
  }
  return {tied, runs};
}

// Sorts, and counts the pairs that were in the wrong order: a merge sort from runs of one.
double sort_and_count(std::vector<double>& values) {
  std::vector<double> merged(values.size());
  const std::size_t n = values.size();
  std::uint64_t swapped = 0;
  for (std::size_t width = 1; width < n; width *= 2) {
    for (std::size_t begin = 0; begin < n; begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, n);
      const std::size_t end = std::min(begin + 2 * width, n);
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t to = begin; to < end; ++to) {
        if (left < middle && (right == end || values[left] <= values[right])) {
          merged[to] = values[left++];
        } else {
          merged[to] = values[right++];
          swapped += middle - left;
        }
      }
    }
    values.swap(merged);
  }
  return static_cast<double>(swapped);
}

// Knight (1966).
double kendall_of(Pairs& pairs, KendallVariant variant) {
  std::sort(pairs.begin(), pairs.end());
  const auto [tied_x, distinct_x] = tied_pairs(pairs, [](const auto& a, const auto& b) { return a.first == b.first; });
  const double tied_both = tied_pairs(pairs, [](const auto& a, const auto& b) { return a == b; }).first;
  std::vector<double> y(pairs.size());
  std::transform(pairs.begin(), pairs.end(), y.begin(), [](const auto& pair) { return pair.second; });
  const double discordant = sort_and_count(y);
  const auto [tied_y, distinct_y] = tied_pairs(y, [](double a, double b) { return a == b; });
  const auto n = static_cast<double>(pairs.size());
  const double all = n * (n - 1.0) / 2.0;
  const double difference = all - tied_x - tied_y + tied_both - 2.0 * discordant;
  double tau = 0.0;
  switch (variant) {
    case KendallVariant::a:
      tau = difference / (difference + 2.0 * discordant);
      break;
    case KendallVariant::b:
      tau = difference / (std::sqrt(all - tied_x) * std::sqrt(all - tied_y));
      break;
    case KendallVariant::c: {
      const double distinct = std::min(distinct_x, distinct_y);
      tau = 2.0 * difference / ((distinct - 1.0) / distinct * n * n);
      break;
    }
  }
  return std::clamp(tau, -1.0, 1.0);
}

}  // namespace

at::Tensor spearman_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
  return by_column(preds, targets, num_outputs, [](const Pairs& pairs) { return spearman_of(pairs); });
}

at::Tensor kendall_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs,
                           KendallVariant variant) {
  return by_column(preds, targets, num_outputs, [variant](Pairs& pairs) { return kendall_of(pairs, variant); });
}

at::Tensor spearman_on_device(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
  const at::Tensor target = targets.to(at::kDouble).reshape({-1, num_outputs});
  const at::Tensor pred = preds.to(at::kDouble).reshape({-1, num_outputs});
  if (pred.size(0) == 0) {
    return at::zeros({num_outputs}, pred.options()).fill_(rank_nan);
  }
  const at::Tensor counted = target.isnan().any(1).logical_not();
  const at::Tensor n = counted.sum();
  const at::Tensor weights = counted.to(at::kDouble);
  const auto ranks = [&](const at::Tensor& x) {
    // No search finds its way among nan.
    const at::Tensor columns = at::where(x.isnan(), 0.0, x).t().contiguous();
    const auto [sorted, order] = at::sort(columns, /*dim=*/1, /*descending=*/false);
    // How many that count stand before each position.
    const at::Tensor there = counted.expand_as(columns).gather(1, order);
    const at::Tensor before =
        at::cat({at::zeros({num_outputs, 1}, there.options().dtype(at::kLong)), there.cumsum(1, at::kLong)}, 1);
    const at::Tensor first = before.gather(1, at::searchsorted(sorted, columns, false, /*right=*/false));
    const at::Tensor last = before.gather(1, at::searchsorted(sorted, columns, false, /*right=*/true));
    return (first + last - n).to(at::kDouble) * weights;
  };
  const at::Tensor x = ranks(pred);
  const at::Tensor y = ranks(target);
  const at::Tensor spread = (x * x).sum(1).sqrt() * (y * y).sum(1).sqrt();
  const at::Tensor value = ((x * y).sum(1) / spread).clamp(-1.0, 1.0);
  const at::Tensor nan = pred.isnan().logical_and(counted.unsqueeze(1)).any(0).logical_or(n.eq(0));
  return at::where(nan, rank_nan, at::where(spread.eq(0), 0.0, value));
}

}  // namespace danling::inline v0::metrics::detail
