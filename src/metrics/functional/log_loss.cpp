#include <danling/metrics/functional/log_loss.hpp>

#include <cmath>
#include <limits>
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include <danling/core/error.hpp>

#include <metrics/functional/class_sums.hpp>
#include <metrics/functional/score_values.hpp>

namespace danling::inline v0::metrics {
namespace {

using detail::ScoreTask;

constexpr const char* log_loss_where = "metrics.log_loss";

// From [columns, 3]: the mean over all decisions or over labels.
MetricValue log_loss_of(const at::Tensor& sums, Average average) {
  if (average == Average::micro) {
    if (sums.is_cpu() && sums.size(0) == 1) {
      const double* data = sums.const_data_ptr<double>();
      return MetricValue::sum(data[0], static_cast<std::int64_t>(data[1]));
    }
    const at::Tensor total = sums.sum(0);
    return MetricValue::sum(total.select(0, 0), total.select(0, 1).to(at::kLong));
  }
  // A label with data has a value, perhaps nan; a label without data is left out.
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  at::Tensor values;
  at::Tensor weights;
  if (sums.is_cpu()) {
    values = detail::host_vector(sums.size(0));
    weights = detail::host_vector(sums.size(0));
    const double* data = sums.const_data_ptr<double>();
    for (std::int64_t c = 0; c < sums.size(0); ++c, data += 3) {
      values.mutable_data_ptr<double>()[c] = data[0] / data[1];
      weights.mutable_data_ptr<double>()[c] = std::isnan(data[0]) ? nan : data[2];
    }
  } else {
    values = sums.select(1, 0) / sums.select(1, 1);
    weights = at::where(sums.select(1, 0).isnan(), nan, sums.select(1, 2));
  }
  return detail::average_classes(values, weights, average);
}

MetricFunc log_loss_metric(const ScoreTask& task, Average average) {
  detail::check_size(task, log_loss_where);
  const auto sums = std::make_shared<const RunningSums>(
      RunningSums{.key = concat("log loss, ", task.text()),
                  .of_batch =
                      [task](const at::Tensor& preds, const at::Tensor& targets) {
                        const auto [scores, labels] = detail::checked_scores(preds, targets, task, log_loss_where);
                        return scores.is_cpu() ? detail::log_loss_on_host(scores, labels, task)
                                               : detail::log_loss_on_device(scores, labels, task);
                      },
                  .form = RunningSums::Form{at::kDouble, {task.task == Task::multilabel ? task.num : 1, 3}}});
  MetricFunc out{.name = "log_loss", .sums = {sums}, .higher_is_better = false};
  out.compute = [sums, average](const MetricState& state) { return log_loss_of(state.sums(sums), average); };
  return out;
}

}  // namespace

MetricFunc binary_log_loss(const LogLossOptions& options) {
  return log_loss_metric({.task = Task::binary, .num = 1, .ignore_index = options.ignore_index}, Average::micro);
}
MetricFunc multiclass_log_loss(std::int64_t num_classes, const LogLossOptions& options) {
  return log_loss_metric({.task = Task::multiclass, .num = num_classes, .ignore_index = options.ignore_index},
                         Average::micro);
}
MetricFunc multilabel_log_loss(std::int64_t num_labels, const MultilabelLogLossOptions& options) {
  return log_loss_metric({.task = Task::multilabel, .num = num_labels, .ignore_index = options.ignore_index},
                         options.average);
}

at::Tensor log_loss(const at::Tensor& input, const at::Tensor& target, const AnyLogLossOptions& options) {
  const ScoreTask task =
      detail::score_task(options.num_classes, options.num_labels, options.ignore_index, log_loss_where);
  const Average average = task.task == Task::multilabel ? options.average : Average::micro;
  return detail::one_shot(
      log_loss_metric(task, average),
      detail::preprocess_scores(input, target, task, options.class_dim, options.scores, log_loss_where));
}

}  // namespace danling::inline v0::metrics
