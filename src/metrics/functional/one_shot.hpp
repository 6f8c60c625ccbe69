// A metric computed once, from raw predictions and targets.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>
#include <danling/metrics/preprocess.hpp>

namespace danling::inline v0::metrics::detail {

inline BinaryOptions binary_options(const ClassificationOptions& options) {
  return {.threshold = options.threshold, .ignore_index = options.ignore_index};
}
inline MulticlassOptions multiclass_options(const ClassificationOptions& options) {
  return {.average = options.average, .top_k = options.top_k, .ignore_index = options.ignore_index};
}
inline MultilabelOptions multilabel_options(const ClassificationOptions& options) {
  return {.average = options.average, .threshold = options.threshold, .ignore_index = options.ignore_index};
}

/// Preprocesses for the task of `options` and computes the metric. A float64 tensor on the device of the input.
inline at::Tensor value_once(const MetricFunc& metric, const at::Tensor& input, const at::Tensor& target,
                             const ClassificationOptions& options) {
  const c10::NoGradGuard no_grad;
  auto [preds, targets] = preprocess_classification(input, target, options, /*probabilities=*/!metric.labels_only);
  return metric.compute(MetricState(std::move(preds), std::move(targets))).tensor();
}

/// The same with a metric from one of three factories, by task: binary takes the binary options, multiclass the number
/// of classes and the multiclass options, multilabel the number of labels and the multilabel options.
template <class Binary, class Multiclass, class Multilabel>
at::Tensor value_once(const at::Tensor& input, const at::Tensor& target, const ClassificationOptions& options,
                      Binary binary, Multiclass multiclass, Multilabel multilabel) {
  const Task task = task_of(options);
  return value_once(task == Task::binary       ? binary(binary_options(options))
                    : task == Task::multiclass ? multiclass(*options.num_classes, multiclass_options(options))
                                               : multilabel(*options.num_labels, multilabel_options(options)),
                    input, target, options);
}

/// @throws MetricError when `options` set an average or a top_k, which have no effect on the metric.
inline void check_plain(const ClassificationOptions& options, const char* where) {
  check<MetricError>(options.average == Average::macro && options.top_k == 1, where,
                     "expected average macro and top_k 1, their defaults, got ", to_string(options.average), " and ",
                     options.top_k);
}

}  // namespace danling::inline v0::metrics::detail
