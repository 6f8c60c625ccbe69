// The cross-entropy of predicted probabilities.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

struct LogLossOptions {
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
};

struct MultilabelLogLossOptions {
  /// Average over labels; micro is the mean over all decisions of all labels.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
};

// The mean of -log(probability of the target): scikit-learn's log_loss, named "log_loss". Clips probabilities to
// [eps, 1 - eps]; eps is the machine epsilon of their dtype (float32's for narrower dtypes). Multilabel: each label is
// a binary prediction. Stored as sums, exact over batches. Lower is better. nan without data, or if a probability is
// nan; a label with only ignored targets is nan and left out of averages. Nothing waits for a device.
// @throws MetricError for invalid options, shapes and labels; labels are not checked on a device.
MetricFunc binary_log_loss(const LogLossOptions& options = {});
MetricFunc multiclass_log_loss(std::int64_t num_classes, const LogLossOptions& options = {});
MetricFunc multilabel_log_loss(std::int64_t num_labels, const MultilabelLogLossOptions& options = {});

/// Multiclass with `num_classes`, multilabel with `num_labels`, else binary.
struct AnyLogLossOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  /// Average over labels.
  Average average = Average::macro;
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
};

/// Takes probabilities or logits and integer targets (binary, multilabel: also floating 0 and 1); returns a float64
/// scalar, or [labels] for Average::none.
at::Tensor log_loss(const at::Tensor& input, const at::Tensor& target, const AnyLogLossOptions& options = {});

}  // namespace danling::inline v0::metrics
