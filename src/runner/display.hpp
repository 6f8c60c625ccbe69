// Text of results and of the position in a run, for the log.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <danling/core/result.hpp>

namespace danling::inline v0 {
class BaseRunner;
}

namespace danling::inline v0::detail {

/// Pairs of a name, joined by dots, and its text; lists as `[1.0000, 0.6882]`, at most four numbers. Omits "lr".
std::vector<std::pair<std::string, std::string>> display_numbers(const Result& result);

/// `in epoch 3, at step 1200`, or `at step 1200`.
std::string place_in_run(const BaseRunner& runner);

}  // namespace danling::inline v0::detail
