// The names of the numbers in a result, for messages about the score.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/core/result.hpp>

namespace danling::inline v0::detail {

/// Names of all leaves, parts joined by dots.
std::vector<std::string> number_names(const Result& result, const std::string& prefix = "");

/// True when `score` is one of the names, or a number in a list or array of that name.
bool may_hold(const std::vector<std::string>& names, std::string_view score);

}  // namespace danling::inline v0::detail
