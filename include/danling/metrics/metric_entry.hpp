// Entries of a list of metrics, with or without a name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0 {

/// An entry of `{multiclass_auroc(10), {"top5", multiclass_accuracy(10, {.top_k = 5})}}`: DanLing's positional and
/// keyword arguments.
struct MetricEntry {
  MetricEntry(MetricFunc what) : metric(std::move(what)) {}  // NOLINT(google-explicit-constructor)
  MetricEntry(std::string name, const MetricFunc& what) : metric(what.named(std::move(name))), named(true) {}

  MetricFunc metric;
  bool named = false;
};

/// Returns the metrics of a list. Of unnamed entries with the same name the first stays; a named entry replaces the
/// metric of that name, or is appended. @throws MetricError when a given name is repeated.
std::vector<MetricFunc> merge_entries(std::vector<MetricEntry> entries);

}  // namespace danling::inline v0
