// The lines of metrics of a run, on a disk that may be full.
#pragma once

#include <cstdint>

#include <danling/runner/runner_config.hpp>
#include <danling/telemetry/metrics_log.hpp>

namespace danling::inline v0::detail {

struct RunnerServices;

/// Appends to metrics.jsonl, when the run has it open. A failure is told once, and the line written with a later one;
/// with `checkpoint.on_error: stop` it throws Error.
void append_metrics(RunnerServices& services, const RunnerConfig& config, const MetricsLine& line);

/// The lines that a checkpoint taken now counts: those that wait for room too, so that a run which resumes from it
/// without them says that they are missing.
std::int64_t count_metrics(MetricsLog& log);

/// Closes metrics.jsonl, and says how many lines are lost.
void close_metrics(RunnerServices& services);

}  // namespace danling::inline v0::detail
