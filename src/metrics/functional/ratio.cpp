#include <metrics/functional/ratio.hpp>

#include <limits>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>

namespace danling::inline v0::metrics::detail {
namespace {

constexpr double ratio_nan = std::numeric_limits<double>::quiet_NaN();

/// TN, FP, FN, TP.
using Cell = std::array<double, 4>;

double weighted_sum(const Weights& weights, const Cell& cell) {
  return weights[0] * cell[0] + weights[1] * cell[1] + weights[2] * cell[2] + weights[3] * cell[3];
}

double quotient(double over, double under) { return under != 0.0 ? over / under : 0.0; }

double value_of(const RatioMetric& metric, const Cell& cell) {
  double value = quotient(weighted_sum(metric.ratio.over, cell), weighted_sum(metric.ratio.under, cell));
  if (metric.second) {
    value = 0.5 * (value + quotient(weighted_sum(metric.second->over, cell), weighted_sum(metric.second->under, cell)));
  }
  return metric.complement ? 1.0 - value : value;
}

// From class_sums or label_sums. Numbers up to 2^53 are exact.
class CellReader {
 public:
  explicit CellReader(const at::Tensor& counts)
      : data_(counts.const_data_ptr<std::int64_t>()), classes_(counts.dim() == 2 ? counts.size(1) : 0) {
    for (std::int64_t i = 0; i < classes_; ++i) {
      total_ += static_cast<double>(data_[classes_ + i]);
    }
  }

  Cell operator()(std::int64_t i) const {
    if (classes_ == 0) {
      const std::int64_t* cell = data_ + 4 * i;
      return {static_cast<double>(cell[0]), static_cast<double>(cell[1]), static_cast<double>(cell[2]),
              static_cast<double>(cell[3])};
    }
    const auto right = static_cast<double>(data_[i]);
    const auto predicted = static_cast<double>(data_[classes_ + i]);
    const auto of_target = static_cast<double>(data_[2 * classes_ + i]);
    return {total_ - predicted - of_target + right, predicted - right, of_target - right, right};
  }

 private:
  const std::int64_t* data_;
  std::int64_t classes_;
  double total_ = 0.0;
};

bool is_present(const Cell& cell, Present present) {
  return present == Present::all || cell[3] + cell[2] + (present == Present::seen ? cell[1] : 0.0) > 0.0;
}

struct DeviceCell {
  std::array<at::Tensor, 4> of;  // float64, [classes]
};

DeviceCell read_cells(const at::Tensor& counts) {
  const at::Tensor exact = counts.to(at::kDouble);
  if (counts.dim() == 3) {
    const at::Tensor cells = exact.view({-1, 4});
    return {{cells.select(1, 0), cells.select(1, 1), cells.select(1, 2), cells.select(1, 3)}};
  }
  const at::Tensor right = exact[0];
  const at::Tensor wrong = exact[1] - right;
  const at::Tensor missed = exact[2] - right;
  return {{exact[1].sum() - wrong - missed - right, wrong, missed, right}};
}

at::Tensor weighted_sum(const Weights& weights, const DeviceCell& cell) {
  at::Tensor sum;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] != 0.0) {
      const at::Tensor part = weights[i] == 1.0 ? cell.of[i] : cell.of[i].mul(weights[i]);
      sum = sum.defined() ? sum.add(part) : part;
    }
  }
  return sum;
}

at::Tensor quotient(const at::Tensor& over, const at::Tensor& under) {
  return over.div(under).masked_fill_(under.eq(0), 0.0);
}

at::Tensor value_of(const RatioMetric& metric, const DeviceCell& cell) {
  at::Tensor value = quotient(weighted_sum(metric.ratio.over, cell), weighted_sum(metric.ratio.under, cell));
  if (metric.second) {
    value = value.add(quotient(weighted_sum(metric.second->over, cell), weighted_sum(metric.second->under, cell)))
                .mul_(0.5);
  }
  return metric.complement ? value.neg().add_(1.0) : value;
}

}  // namespace

MetricValue ratio_on_host(const at::Tensor& counts, const RatioMetric& metric, const Averaging& averaging) {
  const at::Tensor whole = counts.contiguous();
  const CellReader cells(whole);
  const std::int64_t size = counts.dim() == 2 ? counts.size(1) : counts.size(0);
  Cell sum = {};
  double values = 0.0;
  double weights = 0.0;
  at::Tensor of_classes =
      averaging.average == Average::none ? at::detail::empty_cpu({size}, at::kDouble) : at::Tensor();
  double* of_class = of_classes.defined() ? of_classes.mutable_data_ptr<double>() : nullptr;
  double items = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    const Cell cell = cells(i);
    items += cell[0] + cell[1] + cell[2] + cell[3];
    const bool takes_part = averaging.left_out != i;
    if (averaging.average == Average::micro) {
      for (std::size_t part = 0; part < cell.size() && takes_part; ++part) {
        sum[part] += cell[part];
      }
    } else if (of_class != nullptr) {
      of_class[i] = value_of(metric, cell);
    } else {
      const double weight = averaging.average == Average::weighted              ? cell[2] + cell[3]
                            : takes_part && is_present(cell, averaging.present) ? 1.0
                                                                                : 0.0;
      if (weight != 0.0) {
        values += weight * value_of(metric, cell);
        weights += weight;
      }
    }
  }
  if (of_class != nullptr) {
    if (items == 0.0) {
      of_classes.fill_(ratio_nan);
    }
    return of_classes;
  }
  if (averaging.exact) {
    const double over = weighted_sum(metric.ratio.over, sum);
    return MetricValue::sum(metric.complement ? items - over : over, static_cast<std::int64_t>(items));
  }
  if (items == 0.0) {
    return ratio_nan;
  }
  if (averaging.average == Average::micro) {
    return value_of(metric, sum);
  }
  return weights != 0.0 ? values / weights : averaging.nan_without_weight ? ratio_nan : 0.0;
}

MetricValue ratio_on_device(const at::Tensor& counts, const RatioMetric& metric, const Averaging& averaging) {
  DeviceCell cell = read_cells(counts);
  const at::Tensor items = (cell.of[0] + cell.of[1] + cell.of[2] + cell.of[3]).sum();
  const auto nan_without_items = [&](const at::Tensor& value) { return value.masked_fill(items.eq(0), ratio_nan); };
  if (averaging.average == Average::none) {
    return nan_without_items(value_of(metric, cell));
  }
  at::Tensor part;
  if (averaging.average == Average::weighted) {
    part = cell.of[2] + cell.of[3];
  } else if (averaging.average == Average::micro || averaging.present == Present::all) {
    part = at::ones_like(cell.of[0]);
  } else {
    const at::Tensor of_target = cell.of[2] + cell.of[3];
    part = (averaging.present == Present::seen ? of_target + cell.of[1] : of_target).gt(0).to(at::kDouble);
  }
  if (averaging.left_out && averaging.average != Average::weighted) {
    part.select(0, *averaging.left_out).zero_();
  }
  if (averaging.average == Average::micro) {
    for (at::Tensor& of : cell.of) {
      of = (of * part).sum();
    }
    if (averaging.exact) {
      const at::Tensor over = weighted_sum(metric.ratio.over, cell);
      return MetricValue::sum(metric.complement ? items - over : over, items.to(at::kLong));
    }
    return nan_without_items(value_of(metric, cell));
  }
  const at::Tensor weight = part.sum();
  const at::Tensor mean = (value_of(metric, cell) * part).sum().div(weight);
  return nan_without_items(averaging.nan_without_weight ? mean : mean.masked_fill(weight.eq(0), 0.0));
}

MetricValue correct_share(const RightCount& count, double scale, double offset) {
  return MetricValue::sum(static_cast<double>(count.right) * scale + static_cast<double>(count.counted) * offset,
                          count.counted);
}

MetricValue correct_share(const at::Tensor& right_and_counted, double scale, double offset) {
  if (!right_and_counted.is_cpu()) {
    const at::Tensor counted = right_and_counted[1];
    const at::Tensor right = right_and_counted[0].to(at::kDouble);
    return MetricValue::sum(scale == 1.0 && offset == 0.0 ? right : right.mul(scale).add_(counted, offset), counted);
  }
  const auto* data = right_and_counted.const_data_ptr<std::int64_t>();
  return correct_share(RightCount{data[0], data[1]}, scale, offset);
}

MetricFunc binary_ratio(std::string name, const RatioMetric& metric, bool exact, bool higher_is_better,
                        const BinaryOptions& options) {
  const RunningSumsPtr sums = label_sums(label_rule(options));
  return {.name = std::move(name),
          .sums = {sums},
          .higher_is_better = higher_is_better,
          .compute = [=](const MetricState& state) { return ratio_of(state.sums(sums), metric, {.exact = exact}); }};
}

MetricFunc multilabel_ratio(std::string name, const RatioMetric& metric, const Averaging& averaging,
                            bool higher_is_better, std::int64_t num_labels, const MultilabelOptions& options) {
  const RunningSumsPtr sums = label_sums(label_rule(options, num_labels));
  return {.name = std::move(name),
          .sums = {sums},
          .higher_is_better = higher_is_better,
          .compute = [=](const MetricState& state) { return ratio_of(state.sums(sums), metric, averaging); }};
}

MetricFunc multiclass_ratio(std::string name, const RatioMetric& metric, const Averaging& averaging,
                            bool higher_is_better, const ClassRule& rule) {
  const RunningSumsPtr sums = class_sums(rule);
  return {.name = std::move(name),
          .sums = {sums},
          .labels_only = true,
          .higher_is_better = higher_is_better,
          .compute = [=](const MetricState& state) { return ratio_of(state.sums(sums), metric, averaging); }};
}

MetricFunc multiclass_share(std::string name, double scale, double offset, bool higher_is_better,
                            const ClassRule& rule) {
  const RunningSumsPtr sums = correct_counts(rule);
  return {.name = std::move(name),
          .sums = {sums},
          .labels_only = true,
          .higher_is_better = higher_is_better,
          .compute = [=](const MetricState& state) {
            // Avoids the allocations of a tensor at each step of a stream.
            return !state.has(sums) && state.preds().defined() && state.preds().is_cpu()
                       ? correct_share(right_of_batch(state.preds(), state.targets(), rule), scale, offset)
                       : correct_share(state.sums(sums), scale, offset);
          }};
}

}  // namespace danling::inline v0::metrics::detail
