// Refuses the options that a type does not have.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim::detail {

/// @throws ConfigError for the first of `set` that is not `known`. For a group without decay, names the option
/// no_decay.
inline void expect_known(const std::string& where, std::string_view type, const std::vector<std::string>& set,
                         const std::vector<std::string>& known) {
  for (const auto& key : set) {
    const bool implied = key == "weight_decay" && where.ends_with(".no_decay");
    check<ConfigError>(std::find(known.begin(), known.end(), key) != known.end(),
                       implied ? where.substr(0, where.rfind('.')) : where, "expected options of ", type, " (",
                       join(known), "), got ", quote(implied ? std::string_view("no_decay") : std::string_view(key)));
  }
}

}  // namespace danling::inline v0::optim::detail
