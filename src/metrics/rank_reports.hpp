// Reports that metric containers exchange between ranks before other data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

/// Gathers the reports of all ranks, in rank order. `kind` names the container, such as `global_metrics`.
/// @throws MetricError on all ranks when the kinds differ.
std::vector<std::string> exchange_reports(const Group& group, std::string_view kind, std::string_view report);

}  // namespace danling::inline v0::detail
