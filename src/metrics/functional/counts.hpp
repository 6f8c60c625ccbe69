// Counts of decisions: correct ones, by class, and by pair of classes; on the host and on devices.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics::detail {

// int64 tensors. All zeros if no label is counted.

/// Rule of a multiclass metric; `num_classes` and `top_k` are valid.
struct ClassRule {
  std::int64_t num_classes = 0;
  std::int64_t top_k = 1;
  std::optional<std::int64_t> ignore_index = std::nullopt;
};
/// Rule of a binary or multilabel metric.
struct LabelRule {
  std::int64_t num_labels = 1;
  double threshold = 0.5;
  std::optional<std::int64_t> ignore_index = std::nullopt;
};

/// @throws MetricError for less than two classes, and for a `top_k` outside [1, num_classes].
ClassRule class_rule(std::int64_t num_classes, const MulticlassOptions& options);
ClassRule class_rule(std::int64_t num_classes, std::optional<std::int64_t> ignore_index);
/// @throws MetricError for a threshold outside [0, 1], and for less than one label.
LabelRule label_rule(const BinaryOptions& options, std::int64_t num_labels = 1);
LabelRule label_rule(const MultilabelOptions& options, std::int64_t num_labels);

/// [2]: correctly predicted labels, and counted labels. Memory does not depend on the number of classes.
RunningSumsPtr correct_counts(const ClassRule& rule);
/// [3, num_classes]: correct predictions, predictions and targets of each class. A target among the `top_k` highest
/// scores counts as predicted; otherwise the highest score is the prediction.
RunningSumsPtr class_sums(const ClassRule& rule);
/// [num_classes, num_classes]: rows are targets, columns predictions. @throws MetricError for more than 65536 classes.
RunningSumsPtr confusion_sums(const ClassRule& rule);
/// [num_labels, 2, 2]: rows are targets, columns predictions.
RunningSumsPtr label_sums(const LabelRule& rule);

/// The counts of correct_counts as numbers, for a batch on the host.
struct RightCount {
  std::int64_t right = 0;
  std::int64_t counted = 0;
};
RightCount right_of_batch(const at::Tensor& preds, const at::Tensor& targets, const ClassRule& rule);

// Implementations, for scores [items, classes] or labels [items] with targets [items], or for probabilities or labels
// [items, labels]. On the host: loops that detect labels outside the classes. On devices: LibTorch's kernels, for any
// tensor, without waiting; labels outside the classes count for no class.

RightCount count_right_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule);
at::Tensor right_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule);
at::Tensor right_on_device(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule);
at::Tensor classes_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule);
at::Tensor classes_on_device(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule);
at::Tensor confusion_on_host(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule);
at::Tensor confusion_on_device(const at::Tensor& scores, const at::Tensor& targets, const ClassRule& rule);
at::Tensor labels_on_host(const at::Tensor& scores, const at::Tensor& targets, const LabelRule& rule);
at::Tensor labels_on_device(const at::Tensor& scores, const at::Tensor& targets, const LabelRule& rule);

}  // namespace danling::inline v0::metrics::detail
