#include <metrics/rank_reports.hpp>

#include <danling/core/error.hpp>

#include <distributed/packing.hpp>

namespace danling::inline v0::detail {

std::vector<std::string> exchange_reports(const Group& group, std::string_view kind, std::string_view report) {
  constexpr char end = '\n';
  std::vector<std::string> kinds;
  std::vector<std::string> reports;
  for (const std::string& bytes : group.all_gather(concat(kind, end, report))) {
    const std::size_t length = bytes.find(end);
    const bool known = length != std::string::npos;
    kinds.push_back(known ? bytes.substr(0, length) : "something unknown");
    reports.push_back(known ? bytes.substr(length + 1) : std::string());
  }
  check_agreement<MetricError>(kinds, "metrics.synchronize", "the same kind of metrics");
  return reports;
}

}  // namespace danling::inline v0::detail
