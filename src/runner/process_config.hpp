// Checks of the options of several processes.
#pragma once

#include <chrono>
#include <string>

#include <danling/distributed/process.hpp>
#include <danling/runner/runner_config.hpp>

namespace danling::inline v0::detail {

/// `backend` and `init_method`.
void add_meeting_fields(Fields& f, RunnerConfig& config);

/// Timeout of waits for other processes: at least 1 ms, at most 20 days, `.inf` too. @param seconds  above 0
std::chrono::milliseconds timeout_of(double seconds);

/// @throws ConfigError
void check_processes(const RunnerConfig& config);

/// `identity` with the address that `init_method` names, or the variable INIT_METHOD. Rank and number of processes are
/// always the launcher's.
/// @throws ConfigError for another text, and for a `backend` that cannot join several processes
ProcessIdentity apply_init_method(ProcessIdentity identity, const RunnerConfig& config,
                                  const Environment& environment = process_environment());

/// The line that the main process logs while it waits for the others.
std::string waits_text(const ProcessIdentity& identity, const RunnerConfig& config);

}  // namespace danling::inline v0::detail
