// Checks of a metric before a container adds it.
#pragma once

#include <string_view>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::detail {

/// Checks the name, `compute` and the sums. `where` is the prefix of errors. @throws MetricError.
void check_metric(const MetricFunc& metric, std::string_view where);
/// Checks the sums only.
void check_sums(const MetricFunc& metric, std::string_view where);

}  // namespace danling::inline v0::detail
