// The usual metrics of a task, ready for a runner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <danling/metrics/stream_metrics.hpp>

namespace danling::inline v0::metrics {

struct MulticlassAccuracyOptions {
  /// One accuracy each: `acc` for 1, `acc5` for 5.
  std::vector<std::int64_t> top_k = {1};
  /// Labels of this value do not count.
  std::optional<std::int64_t> ignore_index = -100;
  /// Which dimension of the prediction holds the classes; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
};

/// Accuracy over `num_classes` classes, batch by batch: exact over the epoch, since each batch weighs by its labels.
/// `acc` is the share of right labels over all labels, where DanLing's default averages over classes first.
/// @throws MetricError when `num_classes` is less than two, or `top_k` is empty, repeated or out of range.
std::shared_ptr<StreamMetrics> multiclass(std::int64_t num_classes, const MulticlassAccuracyOptions& options = {});

}  // namespace danling::inline v0::metrics
