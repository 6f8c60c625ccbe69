// Retention rules: select the checkpoints of a history to remove.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0 {

struct HistoryEntry {
  std::string name;
  std::int64_t modified = 0;                   ///< nanoseconds since 1970
  std::optional<double> score = std::nullopt;  ///< score of the state, if any
  bool kept_by_hours = false;                  ///< the hours rule kept it earlier
};

/// A checkpoint is kept if one of the rules applies; without rules all are kept.
struct RetentionRules {
  std::int64_t latest = 0;   ///< number of newest checkpoints
  std::int64_t best = 0;     ///< number of checkpoints with the best scores; on ties the newer
  double every_hours = 0.0;  ///< keeps the first of each period
  bool higher_is_better = false;
};

/// For a history found on disk: marks entries that no other rule keeps as kept by the hours rule, the only rule that
/// can have kept them. File times would decide wrongly, since copies change them.
void mark_kept_by_hours(std::vector<HistoryEntry>& history, RetentionRules rules);

/// The names that no rule keeps, oldest first; never the newest checkpoint. `history`: oldest first.
std::vector<std::string> superseded(const std::vector<HistoryEntry>& history, const RetentionRules& rules);

}  // namespace danling::inline v0
