// The process that has started this one as a rank.
#pragma once

#include <sys/types.h>

#include <string>

#include <danling/distributed/process.hpp>

namespace danling::inline v0::detail {

/// The nearest ancestor that is no part of this rank: mpirun, its proxy, torchrun's agent or a shell. Scripts between
/// the launcher and this process belong to the rank: their environment holds the rank's number.
pid_t launcher_process(const ProcessIdentity& identity);

/// Number and start time of a process: no other process on this machine has had both since it was started. Without a
/// start time where /proc does not show it.
std::string process_name(pid_t pid);

}  // namespace danling::inline v0::detail
