// Refuses the options that a type does not have.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim::detail {

/// @throws ConfigError for the first of `set` that is not `known`.
inline void expect_known(const std::string& where, std::string_view type, const std::vector<std::string>& set,
                         const std::vector<std::string>& known) {
  for (const auto& key : set) {
    check<ConfigError>(std::find(known.begin(), known.end(), key) != known.end(), where, "expected options of ", type,
                       " (", join(known), "), got ", quote(key));
  }
}

}  // namespace danling::inline v0::optim::detail
