#include <metrics/functional/score_columns.hpp>

#include <cmath>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <danling/core/error.hpp>

#include <metrics/host_labels.hpp>
#include <metrics/scalar.hpp>
#include <tensors/ignored.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

using danling::detail::tensor_text;

// One pass without branches; the message is built only on an error.
void check_targets(const at::Tensor& targets, const ScoreTask& task, std::string_view where) {
  const std::int64_t highest = task.task == Task::multiclass ? task.num - 1 : 1;
  const std::int64_t ignored = task.ignore_index.value_or(0);
  const auto* data = targets.const_data_ptr<std::int64_t>();
  const std::int64_t n = targets.numel();
  bool bad = false;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t target = data[i];
    bad |= static_cast<std::uint64_t>(target) > static_cast<std::uint64_t>(highest) &&
           (!task.ignore_index || target != ignored);
  }
  if (!bad) [[likely]] {
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if ((data[i] < 0 || data[i] > highest) && task.ignore_index != data[i]) {
      fail<MetricError>(where, "expected targets from 0 to ", highest, ", got ", data[i], " at position ", i);
    }
  }
}

}  // namespace

std::string ScoreTask::text() const {
  return concat(to_string(task), " ", num, flat ? " flat" : "", " ignoring ",
                ignore_index ? concat(*ignore_index) : "nothing");
}

void check_size(const ScoreTask& task, std::string_view where) {
  if (task.task == Task::multiclass) {
    check<MetricError>(task.num > 1, where, "expected at least two classes, got num_classes ", task.num);
  } else {
    check<MetricError>(task.num > 0, where, "expected at least one label, got num_labels ", task.num);
  }
}

ScoreColumn column_of(const ScoreTask& task, std::int64_t column) {
  if (task.columns() == 1 && task.task != Task::multiclass) {
    return {};
  }
  return task.task == Task::multiclass
             ? ScoreColumn{.offset = column, .stride = task.num, .positive = column}
             : ScoreColumn{.offset = column, .stride = task.num, .target_offset = column, .target_stride = task.num};
}

std::pair<at::Tensor, at::Tensor> checked_scores(const at::Tensor& preds, const at::Tensor& given,
                                                 const ScoreTask& task, std::string_view where) {
  const bool floating = given.defined() && at::isFloatingType(given.scalar_type());
  const bool fits =
      preds.defined() && given.defined() && !preds.is_complex() &&
      ((floating && task.task != Task::multiclass) || at::isIntegralType(given.scalar_type(), /*includeBool=*/true)) &&
      (task.task == Task::multiclass
           ? preds.dim() == 2 && given.dim() == 1 && preds.size(0) == given.size(0)
           : preds.dim() == (task.task == Task::binary ? 1 : 2) && preds.sizes() == given.sizes()) &&
      (task.task == Task::binary || preds.size(1) == task.num);
  if (!fits) [[unlikely]] {
    const char* shapes = task.task == Task::binary       ? "scores [N] and integer targets [N]"
                         : task.task == Task::multiclass ? "scores [N, classes] and integer targets [N]"
                                                         : "scores and integer targets [N, labels]";
    fail<MetricError>(where, "expected ", shapes, task.task == Task::binary ? "" : concat(" of ", task.num), ", got ",
                      tensor_text(preds), " and ", tensor_text(given));
  }
  check<MetricError>(preds.device() == given.device(), where, "expected predictions and targets on one device, got ",
                     preds.device().str(), " and ", given.device().str());
  // Reading values of a device would wait for it.
  const at::Tensor targets = floating && given.is_cpu() ? host_labels(given, where) : given;
  const auto type = preds.scalar_type();
  const bool narrow = at::isReducedFloatingType(type) || type == at::kFloat;
  std::pair<at::Tensor, at::Tensor> out = {tensors::raw(preds.to(narrow ? at::kFloat : at::kDouble)),
                                           tensors::raw(targets.to(at::kLong))};
  if (out.second.is_cpu()) {
    check_targets(out.second, task, where);
  }
  return out;
}

ColumnTensors column_tensors(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task) {
  ColumnTensors out;
  const bool one = task.columns() == 1 && task.task != Task::multiclass;
  out.scores = one ? scores.reshape({1, -1}) : scores.t();
  at::Tensor labels;
  if (task.task == Task::multiclass) {
    labels = targets.unsqueeze(0);
    out.positive = labels.eq(at::arange(task.num, targets.options()).unsqueeze(1));
  } else {
    labels = one ? targets.reshape({1, -1}) : targets.t();
    out.positive = labels.eq(1);
  }
  if (task.ignore_index) {
    out.counted = danling::detail::not_ignored(labels, *task.ignore_index).expand_as(out.positive);
    out.positive = out.positive.logical_and(out.counted);
  }
  return out;
}

at::Tensor host_vector(std::int64_t size) { return at::empty({size}, at::kDouble); }

at::Tensor average_on_device(const at::Tensor& values, const at::Tensor& weights, Average average) {
  const at::Tensor broken = weights.isnan().any();
  const at::Tensor there = values.isnan().logical_not();
  const at::Tensor weight = average == Average::weighted ? at::where(there, weights, 0.0) : there.to(at::kDouble);
  const at::Tensor sum = weight.sum();
  const at::Tensor mean = at::where(there, values, 0.0).mul(weight).sum().div(sum);
  // As in torchmetrics: 0 without weight.
  const at::Tensor safe =
      average == Average::weighted ? at::where(sum.eq(0).logical_and(there.any()), 0.0, mean) : mean;
  return at::where(broken, std::numeric_limits<double>::quiet_NaN(), safe);
}

double average_on_host(const at::Tensor& values, const at::Tensor& weights, Average average) {
  const at::Tensor value_data = values.contiguous();
  const at::Tensor weight_data = weights.contiguous();
  const double* value = value_data.const_data_ptr<double>();
  const double* weight = weight_data.const_data_ptr<double>();
  double sum = 0.0;
  double total = 0.0;
  bool any = false;
  for (std::int64_t c = 0; c < values.numel(); ++c) {
    if (std::isnan(weight[c])) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (!std::isnan(value[c])) {
      const double by = average == Average::weighted ? weight[c] : 1.0;
      sum += value[c] * by;
      total += by;
      any = true;
    }
  }
  // As in torchmetrics: 0 without weight.
  return total == 0.0 && any ? 0.0 : sum / total;
}

MetricValue average_classes(const at::Tensor& values, const at::Tensor& weights, Average average) {
  if (average == Average::none) {
    return values;
  }
  return values.is_cpu() ? MetricValue(average_on_host(values, weights, average))
                         : MetricValue(average_on_device(values, weights, average));
}

}  // namespace danling::inline v0::metrics::detail
