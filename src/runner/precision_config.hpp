// Checks the config's options of precision and of the policies for bad updates.
#pragma once

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0::detail {

/// @throws ConfigError for options without effect
void check_precision(const RunnerConfig& config);

}  // namespace danling::inline v0::detail
