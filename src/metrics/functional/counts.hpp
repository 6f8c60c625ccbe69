// Counts for metrics of decisions: correct ones, per class and per pair of classes, on the host and on devices.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics::detail {

// int64 tensors. All zeros without labels, and if all are ignored.

/// Rule of a multiclass metric; `num_classes` and `top_k` are checked.
struct ClassRule {
  std::int64_t num_classes = 0;
  std::int64_t top_k = 1;
  std::optional<std::int64_t> ignore_index = std::nullopt;
};
/// Rule of a binary metric, and of a multilabel one.
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

/// [2]: correctly predicted labels, and counted labels. Needs no memory for the classes.
RunningSumsPtr right_sums(const ClassRule& rule);
/// [3, num_classes]: correct predictions, predictions and targets of each class. With `top_k` a target among the first
/// k counts as predicted, else the first is.
RunningSumsPtr class_sums(const ClassRule& rule);
/// [num_classes, num_classes]: row the target, column the prediction. @throws MetricError beyond 65536 classes.
RunningSumsPtr confusion_sums(const ClassRule& rule);
/// [num_labels, 2, 2]: row the target, column the prediction.
RunningSumsPtr label_sums(const LabelRule& rule);

/// The numbers of right_sums without a tensor, for a batch on the host.
struct RightCount {
  std::int64_t right = 0;
  std::int64_t counted = 0;
};
RightCount right_of_batch(const at::Tensor& preds, const at::Tensor& targets, const ClassRule& rule);

// Their implementations, for scores [items, classes] or labels [items] and targets [items], or [items, labels] of
// probabilities or labels. On the host: our loops, which detect labels outside the classes. On devices: LibTorch's
// kernels, for any tensor, without waiting; labels outside the classes count for no class.

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
