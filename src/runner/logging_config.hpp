// Fields of RunnerConfig for logging, metrics and sinks.
#pragma once

#include <danling/runner/runner_config.hpp>
#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

/// The group "Logging".
void add_logging_fields(Fields& f, RunnerConfig& config);
/// @throws ConfigError for keys of the log file that do not fit
void check_logging(const RunnerConfig& config);
/// Options of a run's logger, which shows its lines on the console.
LoggerOptions logger_options(const RunnerConfig& config);

}  // namespace danling::inline v0::detail
