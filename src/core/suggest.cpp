#include <danling/core/detail/suggest.hpp>

#include <algorithm>
#include <vector>

#include <danling/core/format.hpp>

namespace danling::inline v0::detail {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rolling rows of the optimal string alignment distance.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    above[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(name.size() / 3, 2) + 1;
  for (const auto& candidate : candidates) {
    std::size_t distance = edit_distance(name, candidate);
    // `lr` may mean `optim.lr`: compare without the section too.
    const auto dot = candidate.rfind('.');
    if (dot != std::string::npos && std::string_view(candidate).substr(dot + 1) == name) {
      distance = std::min<std::size_t>(distance, 1);
    }
    if (distance < best_distance && distance < std::max(name.size(), candidate.size())) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const auto found = nearest(name, candidates);
  return found ? concat("; did you mean ", quote(*found), "?") : std::string();
}

}  // namespace danling::inline v0::detail
