// Joins the processes of a run.
#pragma once

#include <danling/distributed/group.hpp>
#include <danling/distributed/process.hpp>

namespace danling::inline v0 {
struct RunnerConfig;
}

namespace danling::inline v0::detail {

/// Uses the timeout and checks of `comm`.
Group join_processes(const ProcessIdentity& identity, const RunnerConfig& config);

}  // namespace danling::inline v0::detail
