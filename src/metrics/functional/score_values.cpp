#include <metrics/functional/score_values.hpp>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/metrics/preprocess.hpp>

namespace danling::inline v0::metrics::detail {

std::pair<at::Tensor, at::Tensor> preprocess_scores(const at::Tensor& input, const at::Tensor& target,
                                                    const ScoreTask& task, std::optional<std::int64_t> class_dim,
                                                    Scores kind, std::string_view where, bool probabilities) {
  check<MetricError>(!class_dim || task.task == Task::multiclass, where, "expected class_dim with num_classes only");
  const c10::NoGradGuard no_grad;
  if (task.task == Task::binary && !probabilities) {
    const auto [scores, labels] = base_preprocess(input, target);
    return {scores.flatten(), labels.flatten()};
  }
  ClassificationOptions options = {.ignore_index = task.ignore_index, .class_dim = class_dim, .scores = kind};
  if (task.task == Task::multiclass) {
    options.num_classes = task.num;
  } else if (task.task == Task::multilabel) {
    options.num_labels = task.num;
  }
  return preprocess_classification(input, target, options, probabilities);
}

std::pair<at::Tensor, at::Tensor> preprocess_outputs(const at::Tensor& input, const at::Tensor& target,
                                                     std::int64_t num_outputs) {
  const c10::NoGradGuard no_grad;
  // The metrics skip samples with a nan target; no copy of the others is needed.
  return preprocess_regression(input, target, num_outputs, /*ignore_nan=*/false);
}

at::Tensor one_shot(const MetricFunc& metric, const std::pair<at::Tensor, at::Tensor>& data) {
  const c10::NoGradGuard no_grad;
  const at::Tensor value = metric.compute(MetricState(data.first, data.second)).tensor();
  return value.device() == data.first.device() ? value : value.to(data.first.device());
}

ScoreTask score_task(std::optional<std::int64_t> num_classes, std::optional<std::int64_t> num_labels,
                     std::optional<std::int64_t> ignore_index, std::string_view where) {
  check<MetricError>(!num_classes || !num_labels, where, "expected num_classes or num_labels, got both");
  const std::int64_t num = num_classes ? *num_classes : num_labels.value_or(1);
  const Task task = num_classes ? Task::multiclass : num_labels ? Task::multilabel : Task::binary;
  const ScoreTask out = {.task = task, .num = num, .ignore_index = ignore_index};
  check_size(out, where);
  return out;
}

}  // namespace danling::inline v0::metrics::detail
