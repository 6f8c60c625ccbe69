// The share of predictions that are right.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric.hpp>

namespace danling::inline v0::metrics {

struct AccuracyOptions {
  /// A label counts as right when it is among the `top_k` highest scores.
  std::int64_t top_k = 1;
  /// Labels of this value do not count.
  std::optional<std::int64_t> ignore_index = -100;
  /// What the class dimension must measure, where that is known.
  std::optional<std::int64_t> num_classes = std::nullopt;
  /// Which dimension of the prediction holds the classes. Found from the shapes when absent; the last one where
  /// several would do.
  std::optional<std::int64_t> class_dim = std::nullopt;
};

/// The share of labels that were predicted, over all labels alike (the "micro" average).
///
/// `prediction`: logits or probabilities with one dimension, the classes, more than `target`; or integer labels of the
/// target's shape, which are compared as they are.
/// `target`: integer labels. Of equal scores the first wins, and nan is above all numbers, as in argmax (which of
/// equal scores is among the `top_k` > 1 is not defined on devices). A batch without labels that count has the value
/// nan and the weight 0. On a device nothing waits, and a label outside the classes is never right.
/// @throws MetricError for shapes, types and options that do not fit, and for labels outside the classes on the host.
MetricValue accuracy(const at::Tensor& prediction, const at::Tensor& target, const AccuracyOptions& options = {});

/// `accuracy` with its options, as a metric.
struct Accuracy {
  AccuracyOptions options = {};
  MetricValue operator()(const at::Tensor& prediction, const at::Tensor& target) const {
    return accuracy(prediction, target, options);
  }
};

struct BinaryAccuracyOptions {
  /// Above it, a probability predicts the label 1.
  double threshold = 0.5;
  /// Labels of this value do not count.
  std::optional<std::int64_t> ignore_index = -100;
};

/// The share of 0 and 1 labels that were predicted.
///
/// `prediction`: probabilities, or logits: values outside [0, 1] show that the batch holds logits, and all go through
/// the sigmoid. Integers and bools are labels. `target`: integers or bools, as many as the prediction has. A batch
/// without labels that count has the value nan and the weight 0. On a device nothing waits, and a label other than 0
/// and 1 is never right.
/// @throws MetricError for shapes and types that do not fit, and for labels other than 0 and 1 on the host.
MetricValue binary_accuracy(const at::Tensor& prediction, const at::Tensor& target,
                            const BinaryAccuracyOptions& options = {});

/// `binary_accuracy` with its options, as a metric.
struct BinaryAccuracy {
  BinaryAccuracyOptions options = {};
  MetricValue operator()(const at::Tensor& prediction, const at::Tensor& target) const {
    return binary_accuracy(prediction, target, options);
  }
};

}  // namespace danling::inline v0::metrics
