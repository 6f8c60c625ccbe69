// Fields of RunnerConfig for logging, metrics and sinks.
#pragma once

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0::detail {

/// The group "Logging".
void add_logging_fields(Fields& f, RunnerConfig& config);

}  // namespace danling::inline v0::detail
