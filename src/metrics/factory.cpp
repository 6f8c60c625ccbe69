#include <danling/metrics/factory.hpp>

#include <danling/core/error.hpp>
#include <danling/metrics/functional/accuracy.hpp>
#include <danling/metrics/preprocess.hpp>

namespace danling::inline v0::metrics {

std::shared_ptr<StreamMetrics> multiclass(std::int64_t num_classes, const MulticlassAccuracyOptions& options) {
  constexpr const char* where = "metrics.multiclass";
  check<MetricError>(num_classes > 1, where, "expected at least two classes, got num_classes ", num_classes);
  check<MetricError>(!options.top_k.empty(), where, "expected at least one top_k, got none");
  std::vector<StreamMetrics::Entry> entries;
  for (const std::int64_t k : options.top_k) {
    check<MetricError>(k >= 1 && k <= num_classes, where, "expected top_k from 1 to num_classes, ", num_classes,
                       ", got ", k);
    entries.emplace_back(
        k == 1 ? "acc" : concat("acc", k),
        multiclass_accuracy(num_classes,
                            {.average = Average::micro, .top_k = k, .ignore_index = options.ignore_index}));
  }
  const MulticlassPreprocessOptions by_class = {
      .ignore_index = options.ignore_index, .class_dim = options.class_dim, .probabilities = false};
  const auto preprocess = [=](const at::Tensor& prediction, const at::Tensor& target) {
    return preprocess_multiclass(prediction, target, num_classes, by_class);
  };
  return std::make_shared<StreamMetrics>(std::move(entries), preprocess);
}

}  // namespace danling::inline v0::metrics
