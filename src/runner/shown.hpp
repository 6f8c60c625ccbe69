// A result and a place in the run as a person reads them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <danling/core/result.hpp>

namespace danling::inline v0 {
class BaseRunner;
}

namespace danling::inline v0::detail {

/// Names, joined by dots, and numbers; lists as `[1.0000, 0.6882]`, their first four numbers. Without "lr".
std::vector<std::pair<std::string, std::string>> shown(const Result& result);

/// `in epoch 3, at step 1200`, or `at step 1200`.
std::string place_in_run(const BaseRunner& runner);

}  // namespace danling::inline v0::detail
