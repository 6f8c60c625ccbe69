#include <metrics/functional/rank_correlation.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <metrics/functional/score_columns.hpp>
#include <metrics/functional/tied_order.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr double rank_nan = std::numeric_limits<double>::quiet_NaN();

struct Columns {
  std::vector<double> preds;
  std::vector<double> targets;
};

// The samples without a nan target.
std::vector<std::int64_t> counted_rows(const at::Tensor& targets, std::int64_t num_outputs) {
  const auto* target = targets.const_data_ptr<double>();
  std::vector<std::int64_t> out;
  out.reserve(static_cast<std::size_t>(targets.numel() / num_outputs));
  for (std::int64_t row = 0; row < targets.numel() / num_outputs; ++row, target += num_outputs) {
    if (std::none_of(target, target + num_outputs, [](double value) { return std::isnan(value); })) {
      out.push_back(row);
    }
  }
  return out;
}

// Reads one output of these samples; returns false when a prediction is nan.
bool read_columns(const at::Tensor& preds, const at::Tensor& targets, const std::vector<std::int64_t>& rows,
                  std::int64_t num_outputs, std::int64_t output, Columns& out) {
  const double* pred = preds.const_data_ptr<double>() + output;
  const double* target = targets.const_data_ptr<double>() + output;
  out.preds.clear();
  out.targets.clear();
  for (const std::int64_t row : rows) {
    if (std::isnan(pred[row * num_outputs])) {
      return false;
    }
    out.preds.push_back(pred[row * num_outputs]);
    out.targets.push_back(target[row * num_outputs]);
  }
  return true;
}

template <class Value>
at::Tensor by_column(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs, Value value) {
  const at::Tensor pred = tensors::raw(preds.to(at::kDouble));
  const at::Tensor target = tensors::raw(targets.to(at::kDouble));
  const std::vector<std::int64_t> rows = counted_rows(target, num_outputs);
  at::Tensor out = host_vector(num_outputs);
  auto* data = out.mutable_data_ptr<double>();
  Columns columns;
  columns.preds.reserve(rows.size());
  columns.targets.reserve(rows.size());
  for (std::int64_t k = 0; k < num_outputs; ++k) {
    const bool ranked = !rows.empty() && read_columns(pred, target, rows, num_outputs, k, columns);
    data[k] = ranked ? value(columns.preds, columns.targets) : rank_nan;
  }
  return out;
}

double spearman_of(const std::vector<double>& preds, const std::vector<double>& targets) {
  // Twice the rank minus the mean rank, an integer: ties share their mean.
  const auto centered = [](const std::vector<double>& values, std::vector<double>& ranks) {
    ranks.resize(values.size());
    double squares = 0.0;
    for_each_tie(values, [&](std::size_t begin, std::size_t end, const std::uint64_t* order) {
      const double rank = static_cast<double>(begin + end) - static_cast<double>(values.size());
      squares += rank * rank * static_cast<double>(end - begin);
      for (; begin < end; ++begin) {
        ranks[position_of(order[begin])] = rank;
      }
    });
    return squares;
  };
  std::vector<double> x;
  std::vector<double> y;
  const double xx = centered(preds, x);
  const double yy = centered(targets, y);
  double xy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += x[i] * y[i];
  }
  return xx == 0.0 || yy == 0.0 ? 0.0 : std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
}

double pairs_among(std::size_t count) {
  const auto size = static_cast<double>(count);
  return size * (size - 1.0) / 2.0;
}

struct DenseRanks {
  std::vector<std::uint32_t> ranks;  // equal values share a rank, and no rank is skipped
  double tied_pairs = 0.0;
  double distinct = 0.0;
};

DenseRanks dense_ranks(const std::vector<double>& values) {
  DenseRanks out{.ranks = std::vector<std::uint32_t>(values.size())};
  std::uint32_t rank = 0;
  for_each_tie(values, [&](std::size_t begin, std::size_t end, const std::uint64_t* order) {
    out.tied_pairs += pairs_among(end - begin);
    for (; begin < end; ++begin) {
      out.ranks[position_of(order[begin])] = rank;
    }
    ++rank;
  });
  out.distinct = static_cast<double>(rank);
  return out;
}

// Sorts, and counts the pairs in the wrong order: a merge sort from short runs.
double sort_and_count(std::vector<std::uint32_t>& values) {
  constexpr std::size_t run = 16;
  const std::size_t n = values.size();
  std::uint64_t swapped = 0;
  for (std::size_t begin = 0; begin < n; begin += run) {
    const std::size_t end = std::min(begin + run, n);
    for (std::size_t i = begin + 1; i < end; ++i) {
      const std::uint32_t value = values[i];
      std::size_t to = i;
      for (; to > begin && values[to - 1] > value; --to) {
        values[to] = values[to - 1];
      }
      values[to] = value;
      swapped += i - to;
    }
  }
  std::vector<std::uint32_t> merged(n);
  for (std::size_t width = run; width < n; width *= 2) {
    for (std::size_t begin = 0; begin < n; begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, n);
      const std::size_t end = std::min(begin + 2 * width, n);
      std::size_t left = begin;
      std::size_t right = middle;
      std::size_t to = begin;
      // Avoids a branch on the values, which CPUs cannot predict.
      while (left < middle && right < end) {
        const std::uint32_t a = values[left];
        const std::uint32_t b = values[right];
        const bool wrong = b < a;
        merged[to++] = wrong ? b : a;
        swapped += wrong ? middle - left : 0;
        right += wrong ? 1 : 0;
        left += wrong ? 0 : 1;
      }
      const auto at = [&](std::vector<std::uint32_t>& from, std::size_t i) {
        return from.begin() + static_cast<std::ptrdiff_t>(i);
      };
      const auto rest = std::copy(at(values, left), at(values, middle), at(merged, to));
      std::copy(at(values, right), at(values, end), rest);
    }
    values.swap(merged);
  }
  return static_cast<double>(swapped);
}

// Knight (1966).
double kendall_of(const std::vector<double>& preds, const std::vector<double>& targets, KendallVariant variant) {
  const DenseRanks x = dense_ranks(preds);
  const DenseRanks y = dense_ranks(targets);
  std::vector<std::uint64_t> pairs(preds.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = std::uint64_t{x.ranks[i]} << 32 | y.ranks[i];
  }
  sort_bits(pairs, 0);
  double tied_both = 0.0;
  for (std::size_t begin = 0; begin < pairs.size();) {
    std::size_t end = begin + 1;
    for (; end < pairs.size() && pairs[end] == pairs[begin]; ++end) {
    }
    tied_both += pairs_among(end - begin);
    begin = end;
  }
  std::vector<std::uint32_t> order(pairs.size());
  std::transform(pairs.begin(), pairs.end(), order.begin(),
                 [](std::uint64_t pair) { return static_cast<std::uint32_t>(pair); });
  const double discordant = sort_and_count(order);
  const auto n = static_cast<double>(pairs.size());
  const double all = pairs_among(pairs.size());
  const double difference = all - x.tied_pairs - y.tied_pairs + tied_both - 2.0 * discordant;
  double tau = 0.0;
  switch (variant) {
    case KendallVariant::a:
      tau = difference / (difference + 2.0 * discordant);
      break;
    case KendallVariant::b:
      tau = difference / (std::sqrt(all - x.tied_pairs) * std::sqrt(all - y.tied_pairs));
      break;
    case KendallVariant::c: {
      const double distinct = std::min(x.distinct, y.distinct);
      tau = 2.0 * difference / ((distinct - 1.0) / distinct * n * n);
      break;
    }
  }
  return std::clamp(tau, -1.0, 1.0);
}

}  // namespace

at::Tensor spearman_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs) {
  return by_column(preds, targets, num_outputs, spearman_of);
}

at::Tensor kendall_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs,
                           KendallVariant variant) {
  return by_column(preds, targets, num_outputs, [variant](const std::vector<double>& x, const std::vector<double>& y) {
    return kendall_of(x, y, variant);
  });
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
    // Binary search fails if there are nan.
    const at::Tensor columns = at::where(x.isnan(), 0.0, x).t().contiguous();
    const auto [sorted, order] = at::sort(columns, /*dim=*/1, /*descending=*/false);
    // Number of counted samples before each position.
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
