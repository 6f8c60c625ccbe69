// Which checkpoints of a history are no longer kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0 {

struct HistoryEntry {
  std::string name;
  std::int64_t modified = 0;                   ///< nanoseconds since 1970
  std::optional<double> score = std::nullopt;  ///< of the state, where it has one
  bool kept_by_hours = false;                  ///< the rule of hours has kept it before
};

/// A checkpoint stays when one of the rules keeps it; without any rule all stay.
struct RetentionRules {
  std::int64_t latest = 0;   ///< so many of the newest
  std::int64_t best = 0;     ///< so many of the best score; among equals the newer
  double every_hours = 0.0;  ///< the first of each such span
  bool higher_is_better = false;
};

/// For a history that was found on disk: marks what no other rule keeps as kept by that of hours, which alone can have
/// left it there. The times of files that were copied would decide anew, and wrongly.
void settle_hours(std::vector<HistoryEntry>& history, RetentionRules rules);

/// The names that no rule keeps, oldest first; the newest is never among them. `history`: oldest first.
std::vector<std::string> superseded(const std::vector<HistoryEntry>& history, const RetentionRules& rules);

}  // namespace danling::inline v0
