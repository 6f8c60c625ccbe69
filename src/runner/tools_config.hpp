// Checks of options that a tool or option without its switch would not read.
#pragma once

#include <string>
#include <vector>

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0::detail {

/// Of files and the command line alone: defaults of the program may stand without the switch.
/// @param changed  the top-level keys that these changed
/// @throws ConfigError
void check_tools(const RunnerConfig& config, const std::vector<std::string>& changed);
/// Bounds of their options. @throws ConfigError
void check_tools(const RunnerConfig& config);

}  // namespace danling::inline v0::detail
