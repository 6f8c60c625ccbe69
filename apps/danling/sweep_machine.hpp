// Cores and memory of the machine within the limits of this process, and the memory of a trial.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace danling_command {

/// Cores that this process may use: its affinity, within the quota of its control groups.
int usable_cores();

/// Memory that new processes may take now without swapping: what the system has available, and what the limits of the
/// control groups leave (page cache that can be dropped counts as free). Nothing where the system does not say.
std::optional<std::uint64_t> available_memory();

/// Resident memory of a process and its children now. 0 once it has ended.
std::uint64_t resident_memory(pid_t process);

}  // namespace danling_command
