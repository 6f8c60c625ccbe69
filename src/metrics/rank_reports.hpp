// Reports that containers of metrics first exchange between ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

/// The reports of all ranks, in their order. `kind` names the container, such as `global_metrics`: reports of different
/// kinds are not compatible. @throws MetricError on all ranks when their kinds differ.
std::vector<std::string> exchange_reports(const Group& group, std::string_view kind, std::string_view report);

}  // namespace danling::inline v0::detail
