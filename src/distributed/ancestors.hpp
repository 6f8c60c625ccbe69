// Finds the process that has started this rank.
#pragma once

#include <sys/types.h>

#include <string>

#include <danling/distributed/process.hpp>

namespace danling::inline v0::detail {

/// Returns the nearest ancestor that does not belong to this rank: mpirun, its proxy, torchrun's agent or a shell.
/// Scripts between the launcher and this process belong to the rank: their environment contains the rank's number.
pid_t launcher_process(const ProcessIdentity& identity);

/// Returns the pid and start time, which identify a process on this machine since boot. Without the start time if /proc
/// does not show it.
std::string process_name(pid_t pid);

}  // namespace danling::inline v0::detail
