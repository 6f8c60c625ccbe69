// What containers ask of a metric before they take it.
#pragma once

#include <string_view>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::detail {

/// A name, a `compute`, and sums that can be made. `where` begins the errors. @throws MetricError.
void check_metric(const MetricFunc& metric, std::string_view where);
/// Its sums alone.
void check_sums(const MetricFunc& metric, std::string_view where);

}  // namespace danling::inline v0::detail
