// Metrics as a list gives them: under their own names, or under given ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0 {

/// An item of `{multiclass_auroc(10), {"top5", multiclass_accuracy(10, {.top_k = 5})}}`: DanLing's positional arguments
/// and keywords.
struct MetricEntry {
  MetricEntry(MetricFunc what) : metric(std::move(what)) {}  // NOLINT(google-explicit-constructor)
  MetricEntry(std::string name, const MetricFunc& what) : metric(what.named(std::move(name))), named(true) {}

  MetricFunc metric;
  bool named = false;
};

/// The metrics of a list. Of those under their own, same name the first stays; one under a given name takes the place
/// of one of that name, or comes last. @throws MetricError when a name is given twice.
std::vector<MetricFunc> merge_entries(std::vector<MetricEntry> entries);

}  // namespace danling::inline v0
