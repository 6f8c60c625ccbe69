// The cross-entropy of predicted probabilities.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

struct LogLossOptions {
  /// Targets of this value do not count.
  std::optional<std::int64_t> ignore_index = -100;
};

struct MultilabelLogLossOptions {
  /// Over labels; micro is the mean over all decisions.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
};

// The mean of -log(probability of the target), scikit-learn's log_loss, named "log_loss". Probabilities are clipped to
// [eps, 1 - eps], where eps is that of their type (float32's for narrower ones). Multilabel: each label as a binary
// prediction. Sums, which add up over batches exactly. Lower is better. nan without data, and where a probability is
// nan; a label of which all targets are ignored is nan and left out of averages. On a device nothing waits.
// @throws MetricError for options, shapes and labels that do not fit; on a device labels are not checked.
MetricFunc binary_log_loss(const LogLossOptions& options = {});
MetricFunc multiclass_log_loss(std::int64_t num_classes, const LogLossOptions& options = {});
MetricFunc multilabel_log_loss(std::int64_t num_labels, const MultilabelLogLossOptions& options = {});

/// With `num_classes` multiclass, with `num_labels` multilabel, else binary.
struct AnyLogLossOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  /// Over labels.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  /// Which dimension of the prediction holds the classes; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
};

/// Of probabilities or logits and integer targets: a float64 scalar, or [labels] for Average::none.
at::Tensor log_loss(const at::Tensor& input, const at::Tensor& target, const AnyLogLossOptions& options = {});

}  // namespace danling::inline v0::metrics
