// How many tokens a language model hesitates between.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::metrics {

struct PerplexityOptions {
  /// Targets of this value do not count.
  std::optional<std::int64_t> ignore_index = -100;
};

/// exp of the mean of -log softmax(logits)[target], torchmetrics' perplexity, named "perplexity".
///
/// Predictions are logits [..., vocabulary], not probabilities. In `multiclass_metrics` it stands with metrics of
/// predicted classes alone, such as the accuracy; in a container of your own, with `base_preprocess`. Targets are
/// integers [...]. Kept as two sums, so that it is exact over batches. Needs memory for a few rows of logits. Lower is
/// better. nan without data. A target of logit -inf gives inf. On a device nothing waits, and targets outside the
/// vocabulary are not found.
/// @throws MetricError for shapes and types that do not fit, and for targets outside the vocabulary on the host.
MetricFunc perplexity(const PerplexityOptions& options = {});

/// Of logits and targets: a float64 scalar.
at::Tensor perplexity(const at::Tensor& logits, const at::Tensor& target, const PerplexityOptions& options = {});

}  // namespace danling::inline v0::metrics
