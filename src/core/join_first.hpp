// The first names of a long list, for messages.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <danling/core/format.hpp>

namespace danling::inline v0::detail {

/// Joins the first `most` names: `a, b and 3 more`.
inline std::string join_first(const std::vector<std::string>& names, std::size_t most) {
  const std::size_t count = std::min(names.size(), most);
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count));
  return concat(join(first), names.size() > count ? concat(" and ", names.size() - count, " more") : "");
}

}  // namespace danling::inline v0::detail
