// How many threads each process of a run should use.
#pragma once

#include <string>

#include <danling/distributed/process.hpp>

namespace danling::inline v0 {

struct ProcessThreads {
  /// For `at::set_num_threads`; at least 1.
  int threads = 1;
  /// Number and reason, for a log: `2 threads: 4 cores for 2 processes`.
  std::string reason;
};

/// The number of threads with which the processes of this machine use its cores once. MKL_NUM_THREADS or
/// OMP_NUM_THREADS decides where the user sets it (LibTorch prefers the former). In a Slurm step SLURM_CPUS_PER_TASK
/// does, up to the number of cores on which this process may run. Else this process's share of the cores: those on
/// which its launcher may run, at most a cgroup's CPU quota, divided by `local_world_size`; but no more than those on
/// which this process may run, if the launcher has bound it. Cores are physical: two hardware threads of a core count
/// once. Where the launcher does not say how many processes are on this machine, all may be.
///
/// Reads /proc and /sys; changes nothing. Called by any process at any time.
ProcessThreads process_threads(const ProcessIdentity& identity, const Environment& environment = process_environment());

}  // namespace danling::inline v0
