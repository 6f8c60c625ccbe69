// Perplexity of a language model.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::metrics {

struct PerplexityOptions {
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
};

/// exp of the mean of -log softmax(logits)[target]: torchmetrics' perplexity, named "perplexity".
///
/// Predictions are logits [..., vocabulary], not probabilities; targets are integers [...]. `multiclass_metrics`
/// accepts it alone or with metrics of predicted classes, such as the accuracy; other containers need the default
/// `base_preprocess`. Stored as two sums, exact over batches. Needs memory for a few rows of logits. Lower is better.
/// nan without data; inf if the logit of a target is -inf. Nothing waits for a device, where targets outside the
/// vocabulary are not detected.
/// @throws MetricError for invalid shapes and types, and for targets outside the vocabulary on the host.
MetricFunc perplexity(const PerplexityOptions& options = {});

/// Takes logits and targets; returns a float64 scalar.
at::Tensor perplexity(const at::Tensor& logits, const at::Tensor& target, const PerplexityOptions& options = {});

}  // namespace danling::inline v0::metrics
