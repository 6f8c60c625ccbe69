// Moments of a batch on the host: in blocks that stay in the nearest cache, which then merge.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <metrics/functional/moments.hpp>
#include <metrics/functional/vectors.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr std::int64_t block_rows = 1024;

/// Which sums a block needs.
struct Needs {
  bool pred = false;
  bool target = false;
  bool error = false;
  bool absolute = false;
  bool relative = false;
  bool square = false;
};

constexpr Needs needs_of(MomentParts parts) {
  switch (parts) {
    case MomentParts::absolute:
      return {.absolute = true};
    case MomentParts::relative:
      return {.relative = true};
    case MomentParts::square:
      return {.square = true};
    case MomentParts::unexplained:
      return {.target = true, .square = true};
    case MomentParts::residual:
      return {.target = true, .error = true};
    case MomentParts::correlation:
      return {.pred = true, .target = true};
    case MomentParts::all:
      break;
  }
  return {.pred = true, .target = true, .error = true, .absolute = true, .relative = true};
}

/// Sums of the first pass, about the first sample, and of the second, about the means. V: double, or Doubles.
template <class V>
struct FirstSums {
  V pred = {};
  V target = {};
  V error = {};
  V absolute = {};
  V relative = {};
  V square = {};
};
template <class V>
struct SecondSums {
  V pred = {};
  V target = {};
  V error = {};
  V squares_pred = {};
  V squares_target = {};
  V squares_error = {};
  V products = {};
};

struct Center {
  double pred = 0.0;
  double target = 0.0;
  double error = 0.0;
};

template <MomentParts parts, class V, class T>
[[gnu::always_inline]] inline void add_first(FirstSums<V>& sums, const T* pred_data, const T* target_data,
                                             const Center& first) {
  constexpr Needs needs = needs_of(parts);
  V pred;
  V target;
  load(pred_data, pred);
  load(target_data, target);
  const V error = target - pred;
  if constexpr (needs.pred) {
    sums.pred += pred - first.pred;
  }
  if constexpr (needs.target) {
    sums.target += target - first.target;
  }
  if constexpr (needs.error) {
    sums.error += error - first.error;
  }
  if constexpr (needs.square) {
    sums.square += error * error;
  }
  if constexpr (needs.absolute || needs.relative) {
    const V zero = {};
    const V absolute = error < zero ? -error : error;
    if constexpr (needs.absolute) {
      sums.absolute += absolute;
    }
    if constexpr (needs.relative) {
      const V least = zero + least_target;
      const V size = target < zero ? -target : target;
      sums.relative += absolute / (size < least ? least : size);
    }
  }
}

template <MomentParts parts, class V, class T>
[[gnu::always_inline]] inline void add_second(SecondSums<V>& sums, const T* pred_data, const T* target_data,
                                              const Center& mean) {
  constexpr Needs needs = needs_of(parts);
  V pred_value;
  V target_value;
  load(pred_data, pred_value);
  load(target_data, target_value);
  const V pred = pred_value - mean.pred;
  const V target = target_value - mean.target;
  if constexpr (needs.pred) {
    sums.pred += pred;
    sums.squares_pred += pred * pred;
    sums.products += pred * target;
  }
  if constexpr (needs.target) {
    sums.target += target;
    sums.squares_target += target * target;
  }
  if constexpr (needs.error) {
    const V error = target_value - pred_value - mean.error;
    sums.error += error;
    sums.squares_error += error * error;
  }
}

// Shifted by the first sample, then corrected for what rounding left in the mean: a constant has exactly no spread.
template <MomentParts parts, class T>
[[gnu::always_inline]] inline void add_block_of(const T* preds, const T* targets, std::int64_t n, Moments<double>& m) {
  constexpr Needs needs = needs_of(parts);
  Center center = {.pred = static_cast<double>(preds[0]), .target = static_cast<double>(targets[0])};
  center.error = center.target - center.pred;
  const std::int64_t whole = n - n % num_doubles;
  const auto size = static_cast<double>(n);
  m.n = size;
  {
    FirstSums<Doubles> sums;
    FirstSums<double> tail;
    for (std::int64_t i = 0; i < whole; i += num_doubles) {
      add_first<parts>(sums, preds + i, targets + i, center);
    }
    for (std::int64_t i = whole; i < n; ++i) {
      add_first<parts>(tail, preds + i, targets + i, center);
    }
    center.pred += (total_of(sums.pred) + tail.pred) / size;
    center.target += (total_of(sums.target) + tail.target) / size;
    center.error += (total_of(sums.error) + tail.error) / size;
    m.abs_error = total_of(sums.absolute) + tail.absolute;
    m.relative_error = total_of(sums.relative) + tail.relative;
    m.squares_error = total_of(sums.square) + tail.square;
  }
  if constexpr (needs.pred || needs.target || needs.error) {
    SecondSums<Doubles> sums;
    SecondSums<double> tail;
    for (std::int64_t i = 0; i < whole; i += num_doubles) {
      add_second<parts>(sums, preds + i, targets + i, center);
    }
    for (std::int64_t i = whole; i < n; ++i) {
      add_second<parts>(tail, preds + i, targets + i, center);
    }
    const double pred = total_of(sums.pred) + tail.pred;
    const double target = total_of(sums.target) + tail.target;
    const double error = total_of(sums.error) + tail.error;
    if constexpr (needs.pred) {
      m.mean_pred = center.pred;
      m.rest_pred = pred / size;
      m.squares_pred = total_of(sums.squares_pred) + tail.squares_pred - pred * m.rest_pred;
      m.products = total_of(sums.products) + tail.products - target * m.rest_pred;
    }
    if constexpr (needs.target) {
      m.mean_target = center.target;
      m.rest_target = target / size;
      m.squares_target = total_of(sums.squares_target) + tail.squares_target - target * m.rest_target;
    }
    if constexpr (needs.error) {
      m.mean_error = center.error;
      m.rest_error = error / size;
      m.squares_error = total_of(sums.squares_error) + tail.squares_error - error * m.rest_error;
    }
  }
}

template <MomentParts parts, class T>
Moments<double> moments_of_block(const T* preds, const T* targets, std::int64_t n) {
  Moments<double> out = {};
  if (n > 0) {
    run_vectors([&]() __attribute__((always_inline)) { add_block_of<parts>(preds, targets, n, out); });
  }
  return out;
}

bool any_nan(const Moments<double>& m) {
  // Infinities of both signs add up to nan too, which costs time alone.
  const double sums = m.mean_pred + m.mean_target + m.mean_error + m.squares_pred + m.squares_target + m.squares_error +
                      m.products + m.abs_error + m.relative_error;
  return std::isnan(sums);
}

// The samples of one output that count: those without a nan among their targets.
template <class T>
std::int64_t gather_column(const T* preds, const T* targets, std::int64_t rows, std::int64_t num_outputs,
                           std::int64_t output, double* pred_column, double* target_column) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < rows; ++i, preds += num_outputs, targets += num_outputs) {
    bool there = true;
    for (std::int64_t k = 0; k < num_outputs; ++k) {
      there &= !std::isnan(static_cast<double>(targets[k]));
    }
    pred_column[n] = static_cast<double>(preds[output]);
    target_column[n] = static_cast<double>(targets[output]);
    n += there ? 1 : 0;
  }
  return n;
}

template <MomentParts parts, class T>
void add_block(const T* preds, const T* targets, std::int64_t rows, std::int64_t num_outputs, double* out) {
  if (num_outputs == 1) {
    const Moments<double> block = moments_of_block<parts>(preds, targets, rows);
    if (!any_nan(block)) [[likely]] {
      merge_row(out, block);
      return;
    }
  }
  std::array<double, block_rows> pred_column;
  std::array<double, block_rows> target_column;
  for (std::int64_t k = 0; k < num_outputs; ++k) {
    const std::int64_t n =
        gather_column(preds, targets, rows, num_outputs, k, pred_column.data(), target_column.data());
    merge_row(out + k * num_moments, moments_of_block<parts>(pred_column.data(), target_column.data(), n));
  }
}

template <MomentParts parts, class T>
void add_rows(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs, double* out) {
  const T* pred_data = preds.const_data_ptr<T>();
  const T* target_data = targets.const_data_ptr<T>();
  const std::int64_t rows = preds.numel() / num_outputs;
  const auto add = [&](std::int64_t begin, std::int64_t end, double* total) {
    for (std::int64_t row = begin; row < end; row += block_rows) {
      add_block<parts>(pred_data + row * num_outputs, target_data + row * num_outputs, std::min(block_rows, end - row),
                       num_outputs, total);
    }
  };
  // Parts of fixed sizes, so that the number of threads does not change the result.
  constexpr std::int64_t part_rows = 64 * block_rows;
  const std::int64_t num_parts = (rows + part_rows - 1) / part_rows;
  if (num_parts <= 1) {
    add(0, rows, out);
    return;
  }
  const std::int64_t width = num_outputs * num_moments;
  std::vector<double> totals(static_cast<std::size_t>(num_parts * width), 0.0);
  at::parallel_for(0, num_parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      add(part * part_rows, std::min(rows, (part + 1) * part_rows), totals.data() + part * width);
    }
  });
  for (std::int64_t part = 0; part < num_parts; ++part) {
    for (std::int64_t k = 0; k < num_outputs; ++k) {
      merge_row(out + k * num_moments, load_row(totals.data() + part * width + k * num_moments));
    }
  }
}

template <MomentParts parts>
void add_batch(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs, double* out) {
  if (preds.scalar_type() == at::kFloat && targets.scalar_type() == at::kFloat) {
    add_rows<parts, float>(preds.contiguous(), targets.contiguous(), num_outputs, out);
  } else {
    add_rows<parts, double>(preds.to(at::kDouble).contiguous(), targets.to(at::kDouble).contiguous(), num_outputs, out);
  }
}

}  // namespace

at::Tensor moments_on_host(const at::Tensor& preds, const at::Tensor& targets, std::int64_t num_outputs,
                           MomentParts parts) {
  at::Tensor out = at::zeros({num_outputs, num_moments}, at::kDouble);
  auto* data = out.mutable_data_ptr<double>();
  const auto add = [&]<MomentParts chosen>() { add_batch<chosen>(preds, targets, num_outputs, data); };
  switch (parts) {
    case MomentParts::all:
      add.template operator()<MomentParts::all>();
      break;
    case MomentParts::absolute:
      add.template operator()<MomentParts::absolute>();
      break;
    case MomentParts::relative:
      add.template operator()<MomentParts::relative>();
      break;
    case MomentParts::square:
      add.template operator()<MomentParts::square>();
      break;
    case MomentParts::unexplained:
      add.template operator()<MomentParts::unexplained>();
      break;
    case MomentParts::residual:
      add.template operator()<MomentParts::residual>();
      break;
    case MomentParts::correlation:
      add.template operator()<MomentParts::correlation>();
      break;
  }
  return out;
}

}  // namespace danling::inline v0::metrics::detail
