// The numbers of a result as a person reads them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <danling/core/result.hpp>

namespace danling::inline v0::detail {

/// Names, joined by dots, and numbers; lists as `[1.0000, 0.6882]`, their first four numbers. Without "lr".
std::vector<std::pair<std::string, std::string>> shown(const Result& result);

}  // namespace danling::inline v0::detail
