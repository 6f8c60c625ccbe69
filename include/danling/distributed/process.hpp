// Rank and world size of this process, from the launcher's environment variables.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace danling::inline v0 {

/// Rank and world size of a process. Without a launcher: a world of one.
struct ProcessIdentity {
  int rank = 0;
  int world_size = 1;
  /// Rank on this machine, and number of this run's processes on it; the number is 0 if the launcher does not set it.
  /// Without LOCAL_RANK the rank is 0, unless all processes are known to be on one machine.
  int local_rank = 0;
  int local_world_size = 0;
  /// Address and port at which rank 0 listens; empty and 0 if neither the launcher nor the user sets them.
  std::string master_address;
  int master_port = 0;
  /// Job name from the launcher, equal on all ranks and unique per job; empty if the launcher sets none. Without an
  /// address, processes on one machine use it to find rank 0. Processes of different jobs never join.
  std::string job;
  /// True if the launcher listens there instead of rank 0, as torchrun's agent does.
  bool launcher_hosts_store = false;
  /// Number of times that torchrun has restarted this group.
  int restart_count = 0;
  /// Rendezvous name, equal on all ranks; distinguishes several groups at one address. Empty: a counter is used.
  std::string rendezvous_id;
  /// Launcher that set the variables: "none", "torchrun" (also if RANK and WORLD_SIZE were set by hand), "openmpi",
  /// "slurm" or "mpich" (PMI).
  std::string launcher = "none";

  bool distributed() const { return world_size > 1; }
  bool is_main_process() const { return rank == 0; }
  bool is_local_main_process() const { return local_rank == 0; }
};

/// Returns the value of an environment variable, or nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the environment of this process.
Environment process_environment();

/// Reads the identity of this process from the variables of
/// - torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), also set by hand or by another program,
/// - Open MPI (OMPI_COMM_WORLD_*),
/// - PMI, as MPICH and Intel MPI set them (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS),
/// - a Slurm step (SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE).
///
/// The innermost launcher decides: first torchrun's agent (TORCHELASTIC_RUN_ID), then Open MPI and PMI, whose daemons
/// run in a Slurm step, then Slurm. Without the agent, RANK and WORLD_SIZE must equal the values of Open MPI, PMI or
/// Slurm; they override only a Slurm step of one task. A Slurm allocation without `srun` is a world of one. An empty
/// variable counts as unset. PMIX_RANK is not read.
///
/// MASTER_ADDR and MASTER_PORT apply to every launcher. Without them, rank 0 of a Slurm step of several nodes listens
/// on the first node, at port 15000 + (job id + 1009 * step id) % 10000.
/// @throws DistributedError with the names of the variables, when one is not a number, is out of range, contradicts
/// another, or is missing although another requires it.
ProcessIdentity read_process_identity(const Environment& environment = process_environment());

}  // namespace danling::inline v0
