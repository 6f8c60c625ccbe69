// CPU cores that a process may use, from the kernel.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace danling::inline v0::detail {

/// Returns the logical CPUs on which process `pid` may run (0: this thread); empty if the kernel does not report them.
std::vector<int> allowed_cpus(pid_t pid);

/// Counts the physical cores behind `cpus`. `root`: root of the file system, for tests.
int count_cores(const std::vector<int>& cpus, const std::filesystem::path& root = "/");

/// Returns the CPU time limit of control groups (v1 and v2), in CPUs; nullopt without a limit.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// Cores and limits from which `process_threads` computes.
struct CoreShares {
  int allowed = 1;              ///< cores on which this process may run
  int whole = 1;                ///< cores of the launcher or of Slurm's step
  std::optional<double> quota;  ///< limit of CPU time, in CPUs
};

/// Returns the number of cores for each of `processes` on one machine, at least 1.
int share_cores(const CoreShares& shares, int processes);

}  // namespace danling::inline v0::detail
