#include <danling/metrics/factory.hpp>

#include <danling/core/error.hpp>
#include <danling/metrics/functional/accuracy.hpp>

namespace danling::inline v0::metrics {

std::shared_ptr<StreamMetrics> multiclass(std::int64_t num_classes, const MulticlassAccuracyOptions& options) {
  constexpr const char* where = "metrics.multiclass";
  check<MetricError>(num_classes > 0, where, "expected at least one class, got num_classes ", num_classes);
  check<MetricError>(!options.top_k.empty(), where, "expected at least one top_k, got none");
  std::vector<StreamMetrics::Entry> entries;
  for (const std::int64_t k : options.top_k) {
    check<MetricError>(k >= 1 && k <= num_classes, where, "expected top_k from 1 to num_classes, ", num_classes,
                       ", got ", k);
    entries.emplace_back(k == 1 ? "acc" : concat("acc", k), Accuracy{{.top_k = k,
                                                                      .ignore_index = options.ignore_index,
                                                                      .num_classes = num_classes,
                                                                      .class_dim = options.class_dim}});
  }
  // The metric finds the class dimension in the shapes, which the usual preprocessing would change.
  const auto as_it_is = [](const at::Tensor& prediction, const at::Tensor& target) {
    return std::pair(prediction, target);
  };
  return std::make_shared<StreamMetrics>(std::move(entries), as_it_is);
}

}  // namespace danling::inline v0::metrics
