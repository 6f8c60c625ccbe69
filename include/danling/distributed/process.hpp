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
  /// Address at which rank 0 listens; empty and 0 if the launcher does not set them.
  std::string master_address;
  int master_port = 0;
  /// Whether the launcher listens there in place of rank 0, as torchrun's agent does.
  bool launcher_listens = false;
  /// How often torchrun has restarted this group.
  int restart_count = 0;
  /// Launcher that set them: "none", "torchrun", "openmpi", "slurm" or "mpich" (PMI).
  std::string launcher = "none";

  bool distributed() const { return world_size > 1; }
  bool is_main_process() const { return rank == 0; }
  bool is_local_main_process() const { return local_rank == 0; }
};

/// Returns the value of an environment variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process.
Environment process_environment();

/// Reads the identity of this process: torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, ...) first, then Open MPI's
/// (OMPI_COMM_WORLD_*), those of a Slurm step (SLURM_PROCID, SLURM_STEP_NUM_TASKS, ...), PMI's (PMI_RANK, PMI_SIZE,
/// ...). MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_USE_AGENT_STORE are read for every
/// launcher. An empty variable counts as not set. A Slurm allocation without `srun` is a world of one. PMIX_RANK is not
/// read.
/// @throws DistributedError naming the variable, when one is not a number, out of range, or missing beside another.
ProcessIdentity read_process_identity(const Environment& environment = process_environment());

}  // namespace danling::inline v0
