// Rank and world size of this process, from the launcher's environment variables.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace danling::inline v0 {

/// Rank of a process and size of its world. Without a launcher: a world of one.
struct ProcessIdentity {
  int rank = 0;
  int world_size = 1;
  /// Rank and number of this run's processes on this machine; the number is 0 if the launcher does not set it.
  int local_rank = 0;
  int local_world_size = 0;
  /// Address at which rank 0 listens; empty and 0 if neither the launcher nor the user sets them.
  std::string master_address;
  int master_port = 0;
  /// Name that the launcher gives to this job, the same on all ranks and of no other job; empty if it gives none.
  /// Processes of one machine find rank 0 by it where there is no address. Processes of different jobs never join.
  std::string job;
  /// Whether the launcher listens there in place of rank 0, as torchrun's agent does.
  bool launcher_listens = false;
  /// How often torchrun has restarted this group.
  int restart_count = 0;
  /// Name of the rendezvous, the same on all ranks, which distinguishes several at one address. Empty: a counter.
  std::string meeting;
  /// Launcher that set them: "none", "torchrun" (also where RANK and WORLD_SIZE were set by hand), "openmpi", "slurm"
  /// or "mpich" (PMI).
  std::string launcher = "none";

  bool distributed() const { return world_size > 1; }
  bool is_main_process() const { return rank == 0; }
  bool is_local_main_process() const { return local_rank == 0; }
};

/// Returns the value of an environment variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process.
Environment process_environment();

/// Reads the identity of this process from the variables of
/// - torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), also set by hand or by another program,
/// - Open MPI (OMPI_COMM_WORLD_*),
/// - PMI, as MPICH and Intel MPI set them (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS),
/// - a Slurm step (SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE).
///
/// The launcher that is nearest to the process counts: torchrun's agent (TORCHELASTIC_RUN_ID) before all, then Open MPI
/// and PMI, whose daemons run in a Slurm step, then Slurm. RANK and WORLD_SIZE without the agent must equal what such a
/// launcher says; only a Slurm step of one task gives way to them. A Slurm allocation without `srun` is a world of one.
/// An empty variable counts as not set. PMIX_RANK is not read.
///
/// MASTER_ADDR and MASTER_PORT are read for every launcher. Without them a Slurm step of several nodes meets at its
/// first node, at port 15000 + (job id + 1009 * step id) % 10000.
/// @throws DistributedError naming the variables, when one is not a number, out of range, missing beside another, or
/// contradicts another.
ProcessIdentity read_process_identity(const Environment& environment = process_environment());

}  // namespace danling::inline v0
