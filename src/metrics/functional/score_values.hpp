// Computes the value of a metric from raw predictions, for one-shot functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

#include <metrics/functional/score_columns.hpp>

namespace danling::inline v0::metrics::detail {

/// Preprocesses by task; with `probabilities` false, scores stay unchanged. @throws MetricError for invalid shapes, and
/// for a class_dim without num_classes.
std::pair<at::Tensor, at::Tensor> preprocess_scores(const at::Tensor& input, const at::Tensor& target,
                                                    const ScoreTask& task, std::optional<std::int64_t> class_dim,
                                                    Scores scores, std::string_view where, bool probabilities = true);

/// Preprocesses for regression: [N] or [N, num_outputs]. @throws MetricError for invalid shapes.
std::pair<at::Tensor, at::Tensor> preprocess_outputs(const at::Tensor& input, const at::Tensor& target,
                                                     std::int64_t num_outputs);

/// The value of `metric` for preprocessed data, on the device of the data.
at::Tensor one_shot(const MetricFunc& metric, const std::pair<at::Tensor, at::Tensor>& data);

/// @throws MetricError when both numbers are set, or the one that is set is not positive.
ScoreTask score_task(std::optional<std::int64_t> num_classes, std::optional<std::int64_t> num_labels,
                     std::optional<std::int64_t> ignore_index, std::string_view where);

}  // namespace danling::inline v0::metrics::detail
