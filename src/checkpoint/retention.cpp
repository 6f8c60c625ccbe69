#include <checkpoint/retention.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace danling::inline v0 {

void mark_kept_by_hours(std::vector<HistoryEntry>& history, RetentionRules rules) {
  if (rules.every_hours <= 0.0) {
    return;
  }
  rules.every_hours = 0.0;
  rules.latest = std::max<std::int64_t>(rules.latest, 1);
  const auto others = superseded(history, rules);
  for (auto& entry : history) {
    entry.kept_by_hours = std::find(others.begin(), others.end(), entry.name) != others.end();
  }
}

std::vector<std::string> superseded(const std::vector<HistoryEntry>& history, const RetentionRules& rules) {
  if (rules.latest == 0 && rules.best == 0 && rules.every_hours <= 0.0) {
    return {};
  }
  const std::size_t count = history.size();
  std::vector<bool> kept(count, false);
  const std::size_t newest = std::max<std::size_t>(static_cast<std::size_t>(rules.latest), 1);
  for (std::size_t i = count > newest ? count - newest : 0; i < count; ++i) {
    kept[i] = true;
  }

  std::vector<std::size_t> scored;
  for (std::size_t i = count; i-- > 0;) {
    if (history[i].score && !std::isnan(*history[i].score)) {
      scored.push_back(i);
    }
  }
  std::stable_sort(scored.begin(), scored.end(), [&](std::size_t a, std::size_t b) {
    return rules.higher_is_better ? *history[a].score > *history[b].score : *history[a].score < *history[b].score;
  });
  scored.resize(std::min(scored.size(), static_cast<std::size_t>(rules.best)));
  for (const auto i : scored) {
    kept[i] = true;
  }

  if (rules.every_hours > 0.0) {
    const double span = rules.every_hours * 3600e9;
    std::optional<std::int64_t> last;
    for (std::size_t i = 0; i < count; ++i) {
      // Also kept if the clock went back.
      if (!last || history[i].kept_by_hours || history[i].modified < *last ||
          static_cast<double>(history[i].modified - *last) >= span) {
        kept[i] = true;
        last = history[i].modified;
      }
    }
  }

  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) {
    if (!kept[i]) {
      out.push_back(history[i].name);
    }
  }
  return out;
}

}  // namespace danling::inline v0
