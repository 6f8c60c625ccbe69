// Checks for options that have no effect because their tool or switch is off.
#pragma once

#include <string>
#include <vector>

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0::detail {

/// Only for files and the command line: defaults of the program may stand without the switch.
/// @param changed  the top-level keys that these changed
/// @throws ConfigError
void check_tools(const RunnerConfig& config, const std::vector<std::string>& changed);
/// Checks the ranges of the tools' options. @throws ConfigError
void check_tools(const RunnerConfig& config);

}  // namespace danling::inline v0::detail
