#include <danling/metrics/options.hpp>

#include <danling/core/error.hpp>

namespace danling::inline v0::metrics {

Task task_of(const ClassificationOptions& options) {
  check<MetricError>(!options.num_classes || !options.num_labels, "metrics.task_of",
                     "expected num_classes or num_labels, got both");
  return options.num_classes ? Task::multiclass : options.num_labels ? Task::multilabel : Task::binary;
}

}  // namespace danling::inline v0::metrics
