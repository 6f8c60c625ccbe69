// Checks of the options of several processes.
#pragma once

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0::detail {

/// @throws ConfigError
void check_processes(const RunnerConfig& config);

}  // namespace danling::inline v0::detail
