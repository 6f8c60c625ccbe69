#include <danling/metrics/metric_entry.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

std::vector<MetricFunc> merge_entries(std::vector<MetricEntry> entries) {
  std::vector<MetricFunc> metrics;
  std::vector<std::string> given;
  for (const bool named : {false, true}) {
    for (MetricEntry& entry : entries) {
      if (entry.named != named) {
        continue;
      }
      const auto known = std::find_if(metrics.begin(), metrics.end(),
                                      [&](const MetricFunc& other) { return other.name == entry.metric.name; });
      if (named) {
        check<MetricError>(std::find(given.begin(), given.end(), entry.metric.name) == given.end(), "metrics.create",
                           "expected each name once, got ", quote(entry.metric.name), " twice");
        given.push_back(entry.metric.name);
      }
      if (known == metrics.end()) {
        metrics.push_back(std::move(entry.metric));
      } else if (named) {
        *known = std::move(entry.metric);
      }
    }
  }
  return metrics;
}

}  // namespace danling::inline v0
