// Checks the options of several processes.
#pragma once

#include <chrono>
#include <string>

#include <danling/distributed/process.hpp>
#include <danling/runner/runner_config.hpp>

namespace danling::inline v0::detail {

/// Adds `backend` and `init_method`.
void add_meeting_fields(Fields& f, RunnerConfig& config);

/// Timeout of waits for other processes: at least 1 ms, at most 20 days; accepts `.inf`. @param seconds  above 0
std::chrono::milliseconds timeout_of(double seconds);

/// @throws ConfigError
void check_processes(const RunnerConfig& config);

/// Sets the address of `identity` from `init_method`, or else from the variable INIT_METHOD. Rank and number of
/// processes always come from the launcher.
/// @throws ConfigError for an invalid text, or a `backend` that cannot join several processes
ProcessIdentity apply_init_method(ProcessIdentity identity, const RunnerConfig& config,
                                  const Environment& environment = process_environment());

/// The log line of the main process while it waits for the others.
std::string waits_text(const ProcessIdentity& identity, const RunnerConfig& config);

}  // namespace danling::inline v0::detail
