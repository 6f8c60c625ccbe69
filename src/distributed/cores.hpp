// The processor cores that a process may use, as the kernel says.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace danling::inline v0::detail {

/// Numbers of the logical CPUs on which process `pid` may run, 0 for this thread; empty if the kernel does not say.
std::vector<int> allowed_cpus(pid_t pid);

/// Number of physical cores behind `cpus`. `root` is the file system's, for tests.
int count_cores(const std::vector<int>& cpus, const std::filesystem::path& root = "/");

/// CPUs' worth of time that control groups (v1 and v2) leave to this process; nothing without a limit.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// What `process_threads` knows of a machine.
struct CoreShares {
  int allowed = 1;              ///< cores of this process
  int whole = 1;                ///< cores of the launcher, or of Slurm's step
  std::optional<double> quota;  ///< of CPU time
};

/// Cores for each of `processes` on one machine, at least 1.
int share_cores(const CoreShares& shares, int processes);

}  // namespace danling::inline v0::detail
