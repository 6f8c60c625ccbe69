// Moments of a batch on the host: computed in blocks that fit the L1 cache, then merged.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <ATen/ops/zeros.h>

#include <metrics/functional/moments.hpp>
#include <metrics/functional/vectors.hpp>
#include <tensors/raw.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr std::int64_t block_rows = 1024;

/// The sums that a block must compute.
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

// The sum of a term over samples, in lanes that the compiler maps to the CPU's vectors; the number of lanes decides the
// bits. One loop per sum: the compiler does not vectorize several sums in one loop.
template <class Term>
[[gnu::always_inline]] inline double sum_of(std::int64_t n, const Term& term) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums = {};
  const std::int64_t whole = n - n % lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] += term(i + lane);
    }
  }
  for (std::int64_t i = whole; i < n; ++i) {
    sums[static_cast<std::size_t>(i - whole)] += term(i);
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Mean and spread of one variable.
struct Spread {
  double mean = 0.0;
  double rest = 0.0;  // rounding error of the mean
  double squares = 0.0;
};

// Shifted by the first sample, then corrected for the mean's rounding error: a constant has a spread of exactly 0.
template <class Value>
[[gnu::always_inline]] inline void add_spread(std::int64_t n, const Value& value, Spread& out) {
  const auto size = static_cast<double>(n);
  const double first = value(0);
  const auto from_first = [&](std::int64_t i) __attribute__((always_inline)) { return value(i) - first; };
  const double mean = first + sum_of(n, from_first) / size;
  const auto from_mean = [&](std::int64_t i) __attribute__((always_inline)) { return value(i) - mean; };
  const auto square = [&](std::int64_t i) __attribute__((always_inline)) {
    const double distance = value(i) - mean;
    return distance * distance;
  };
  const double left = sum_of(n, from_mean);
  out.mean = mean;
  out.rest = left / size;
  out.squares = sum_of(n, square) - left * out.rest;
}

template <MomentParts parts, class T>
[[gnu::always_inline]] inline void add_block_of(const T* preds, const T* targets, std::int64_t n, Moments<double>& m) {
  constexpr Needs needs = needs_of(parts);
  const auto pred = [&](std::int64_t i) __attribute__((always_inline)) { return static_cast<double>(preds[i]); };
  const auto target = [&](std::int64_t i) __attribute__((always_inline)) { return static_cast<double>(targets[i]); };
  const auto error = [&](std::int64_t i) __attribute__((always_inline)) { return target(i) - pred(i); };
  m.n = static_cast<double>(n);
  if constexpr (needs.absolute) {
    const auto absolute = [&](std::int64_t i) __attribute__((always_inline)) { return std::abs(error(i)); };
    m.abs_error = sum_of(n, absolute);
  }
  if constexpr (needs.relative) {
    const auto relative = [&](std::int64_t i) __attribute__((always_inline)) {
      const double size = std::abs(target(i));
      return std::abs(error(i)) / (size < least_target ? least_target : size);
    };
    m.relative_error = sum_of(n, relative);
  }
  if constexpr (needs.square) {
    const auto square = [&](std::int64_t i) __attribute__((always_inline)) { return error(i) * error(i); };
    m.squares_error = sum_of(n, square);
  }
  Spread spread;
  if constexpr (needs.error) {
    add_spread(n, error, spread);
    m.mean_error = spread.mean;
    m.rest_error = spread.rest;
    m.squares_error = spread.squares;
  }
  if constexpr (needs.target) {
    add_spread(n, target, spread);
    m.mean_target = spread.mean;
    m.rest_target = spread.rest;
    m.squares_target = spread.squares;
  }
  if constexpr (needs.pred) {
    add_spread(n, pred, spread);
    m.mean_pred = spread.mean;
    m.rest_pred = spread.rest;
    m.squares_pred = spread.squares;
    const auto product = [&](std::int64_t i) __attribute__((always_inline)) {
      return (pred(i) - m.mean_pred) * (target(i) - m.mean_target);
    };
    m.products = sum_of(n, product) - m.n * m.rest_pred * m.rest_target;
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
  // Infinities of both signs also add up to nan, which only costs time.
  const double sums = m.mean_pred + m.mean_target + m.mean_error + m.squares_pred + m.squares_target + m.squares_error +
                      m.products + m.abs_error + m.relative_error;
  return std::isnan(sums);
}

// Marks counted samples: those without a nan target.
template <class T>
void find_counted(const T* targets, std::int64_t rows, std::int64_t num_outputs, bool* counted) {
  for (std::int64_t i = 0; i < rows; ++i, targets += num_outputs) {
    counted[i] = true;
    for (std::int64_t k = 0; k < num_outputs; ++k) {
      counted[i] &= !std::isnan(static_cast<double>(targets[k]));
    }
  }
}

// Copies the counted samples of one output; returns their number.
template <class T>
std::int64_t gather_column(const T* preds, const T* targets, const bool* counted, std::int64_t rows,
                           std::int64_t num_outputs, double* pred_column, double* target_column) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    pred_column[n] = static_cast<double>(preds[i * num_outputs]);
    target_column[n] = static_cast<double>(targets[i * num_outputs]);
    n += counted[i] ? 1 : 0;
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
  std::array<bool, block_rows> counted;
  find_counted(targets, rows, num_outputs, counted.data());
  for (std::int64_t k = 0; k < num_outputs; ++k) {
    const std::int64_t n = gather_column(preds + k, targets + k, counted.data(), rows, num_outputs, pred_column.data(),
                                         target_column.data());
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
  // Parts of fixed size: the number of threads does not change the result.
  constexpr std::int64_t part_rows = 64 * block_rows;
  const std::int64_t num_parts = (rows + part_rows - 1) / part_rows;
  if (num_parts <= 1) {
    add(0, rows, out);
    return;
  }
  const std::int64_t width = num_outputs * num_moments;
  std::vector<double> totals(static_cast<std::size_t>(num_parts * width), 0.0);
  tensors::for_each_range(num_parts, 1, [&](std::int64_t begin, std::int64_t end) {
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
    add_rows<parts, float>(tensors::raw(preds), tensors::raw(targets), num_outputs, out);
  } else {
    add_rows<parts, double>(tensors::raw(preds.to(at::kDouble)), tensors::raw(targets.to(at::kDouble)), num_outputs,
                            out);
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
