// Scores and targets of a task by class: each class is a separate binary problem.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_value.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics::detail {

/// Meaning of preprocessed predictions. Binary: [N] and [N]; multiclass: [N, C] and classes [N]; multilabel: [N, C] and
/// [N, C], or with `flat` all decisions as one binary problem.
struct ScoreTask {
  Task task = Task::binary;
  std::int64_t num = 1;
  std::optional<std::int64_t> ignore_index = std::nullopt;
  bool flat = false;

  std::int64_t columns() const { return task == Task::binary || flat ? 1 : num; }
  /// A text that identifies the fields above, for keys of shared work.
  std::string text() const;
};

/// Position of the score and target of sample i of one column: score[i * stride], target[i * target_stride].
struct ScoreColumn {
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  std::int64_t target_offset = 0;
  std::int64_t target_stride = 1;
  /// The target value that marks a positive.
  std::int64_t positive = 1;
};

/// @throws MetricError for less than two classes, and for less than one label.
void check_size(const ScoreTask& task, std::string_view where);

ScoreColumn column_of(const ScoreTask& task, std::int64_t column);

/// Contiguous float or double scores and int64 targets with valid shapes for the task. Binary and multilabel targets
/// may be given as floating whole numbers. `where` names the metric.
/// @throws MetricError for other shapes; on the host also for labels that are not whole or outside the task's range.
std::pair<at::Tensor, at::Tensor> checked_scores(const at::Tensor& preds, const at::Tensor& given,
                                                 const ScoreTask& task, std::string_view where);

/// Scores, positive targets and counted targets, as [columns, samples]; `counted` is undefined when all count.
struct ColumnTensors {
  at::Tensor scores;
  at::Tensor positive;
  at::Tensor counted;
};
ColumnTensors column_tensors(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task);

/// Averages values over classes. Leaves out classes whose value is nan; a nan weight means that the data contained nan,
/// and makes the average nan. `weights`: positives per class. Never waits.
MetricValue average_classes(const at::Tensor& values, const at::Tensor& weights, Average average);
double average_on_host(const at::Tensor& values, const at::Tensor& weights, Average average);
at::Tensor average_on_device(const at::Tensor& values, const at::Tensor& weights, Average average);

/// Calls `visit` with a pointer to the elements of a result of `checked_scores`, float or double.
template <class Visit>
void visit_scores(const at::Tensor& scores, Visit&& visit) {
  if (scores.scalar_type() == at::kFloat) {
    visit(scores.const_data_ptr<float>());
  } else {
    visit(scores.const_data_ptr<double>());
  }
}

/// A float64 vector in host memory.
at::Tensor host_vector(std::int64_t size);

}  // namespace danling::inline v0::metrics::detail
