#include <danling/metrics/metric_entry.hpp>

#include <metrics/merge_by_name.hpp>

namespace danling::inline v0 {

std::vector<MetricFunc> merge_entries(std::vector<MetricEntry> entries) {
  std::vector<MetricFunc> metrics;
  for (MetricEntry& entry :
       detail::merge_by_name(std::move(entries), [](const MetricEntry& e) { return e.metric.name; })) {
    metrics.push_back(std::move(entry.metric));
  }
  return metrics;
}

}  // namespace danling::inline v0
