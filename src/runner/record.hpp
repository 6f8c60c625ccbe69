// What a run records of its metrics: lines, on a disk that may be full, and what a person reads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/result.hpp>
#include <danling/runner/runner_config.hpp>
#include <danling/state/state.hpp>
#include <danling/telemetry/metrics_log.hpp>

namespace danling::inline v0::detail {

struct RunnerServices;

/// Appends to metrics.jsonl, when the run has it open. A failure is told once, and the line written with a later one;
/// with `checkpoint.on_error: stop` it throws Error.
void append_metrics(RunnerServices& services, const RunnerConfig& config, const MetricsLine& line);

/// Writes into `checkpoint` how many lines metrics.jsonl has and the text of those that wait for room on disk, which
/// would be lost with the process.
void save_metrics(MetricsLog& log, State& checkpoint);
/// Brings metrics.jsonl to where the checkpoint was taken.
void restore_metrics(RunnerServices& services, std::int64_t lines, const std::string& waiting);

/// Closes metrics.jsonl, and says how many lines are lost.
void close_metrics(RunnerServices& services);

/// What a person reads of a split's result: names, joined by dots, and numbers; lists as `[1.0000, 0.6882]`, their
/// first four numbers. Without "lr".
std::vector<std::pair<std::string, std::string>> shown(const Result& result);

}  // namespace danling::inline v0::detail
