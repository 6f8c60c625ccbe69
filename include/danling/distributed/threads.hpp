// Number of threads for each process of a run.
#pragma once

#include <string>

#include <danling/distributed/process.hpp>

namespace danling::inline v0 {

struct ProcessThreads {
  /// For `at::set_num_threads`; at least 1.
  int threads = 1;
  /// Number and reason for the log: `2 threads: 4 cores for 2 processes`.
  std::string reason;
};

/// Returns a number of threads with which the processes of this machine use each core once. The first rule that applies
/// decides:
/// - MKL_NUM_THREADS, else OMP_NUM_THREADS, if the user sets one (LibTorch prefers the former).
/// - In a Slurm step SLURM_CPUS_PER_TASK, at most the number of cores on which this process may run.
/// - This process's share: the cores on which its launcher may run, at most a cgroup's CPU quota, divided by
/// `local_world_size`; at most the cores on which this process may run, if the launcher has bound it.
///
/// Cores are physical: two hardware threads count as one. If the launcher does not set the number of processes on this
/// machine, all ranks of the world count. Reads /proc and /sys; changes nothing. Any process may call it at any time.
ProcessThreads process_threads(const ProcessIdentity& identity, const Environment& environment = process_environment());

}  // namespace danling::inline v0
