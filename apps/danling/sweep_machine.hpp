// Measures the cores and memory that this process may use, and the memory of a trial.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace danling_command {

/// Returns the number of cores that this process may use, by its affinity and the quota of its control groups.
int usable_cores();

/// Returns the memory that new processes may use now without swapping: the minimum of the system's available memory and
/// the rest of the control groups' limits (reclaimable page cache counts as free). Returns nullopt if unknown.
std::optional<std::uint64_t> available_memory();

/// Returns the resident memory of a process and its children; 0 if it has ended.
std::uint64_t resident_memory(pid_t process);

}  // namespace danling_command
