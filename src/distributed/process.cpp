#include <danling/distributed/process.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include <danling/core/error.hpp>

#include <distributed/slurm.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* environment_where = "distributed.environment";
constexpr int unlimited = 1 << 24;

/// Environment variables of one launcher. If there are two names, the first one that is set applies.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank[2];
  const char* local_world_size[2];
};

constexpr Launcher torchrun = {"torchrun", "RANK", "WORLD_SIZE", {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}};
constexpr Launcher open_mpi = {"openmpi",
                               "OMPI_COMM_WORLD_RANK",
                               "OMPI_COMM_WORLD_SIZE",
                               {"OMPI_COMM_WORLD_LOCAL_RANK"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE"}};
constexpr Launcher pmi = {
    "mpich", "PMI_RANK", "PMI_SIZE", {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}};
constexpr Launcher slurm = {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_LOCALID"}, {}};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(const char* name) const {
    auto value = name == nullptr ? std::nullopt : environment_(name);
    return value && value->empty() ? std::nullopt : value;
  }

  std::optional<int> number(const char* name, int low, int high) const {
    const auto value = text(name);
    if (!value) {
      return std::nullopt;
    }
    int parsed = 0;
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, parsed);
    check<DistributedError>(error == std::errc() && stop == end, environment_where, "expected ", name,
                            " to be a whole number, got ", quote(*value));
    if (high == unlimited) {
      check<DistributedError>(parsed >= low, environment_where, "expected ", name, " to be at least ", low, ", got ",
                              parsed);
    } else {
      check<DistributedError>(parsed >= low && parsed <= high, environment_where, "expected ", name, " between ", low,
                              " and ", high, ", got ", parsed);
    }
    return parsed;
  }

 private:
  const Environment& environment_;
};

/// Rank and world size according to one launcher.
struct Claim {
  const Launcher* launcher = nullptr;
  std::optional<int> rank;
  std::optional<int> world_size;
  const char* size_name = nullptr;

  bool empty() const { return !rank && !world_size; }
};

Claim read_claim(const Reader& read, const Launcher& launcher) {
  return {&launcher, read.number(launcher.rank, 0, unlimited), read.number(launcher.world_size, 1, unlimited),
          launcher.world_size};
}

/// A Slurm allocation also sets SLURM_PROCID=0 and SLURM_NTASKS for a batch script, which is one process.
Claim read_slurm_step(const Reader& read) {
  Claim claim = read_claim(read, slurm);
  if (!claim.world_size && claim.rank.value_or(0) == 0) {
    return {&slurm, {}, {}, nullptr};
  }
  if (!claim.world_size) {
    claim.world_size = read.number("SLURM_NTASKS", 1, unlimited);
    claim.size_name = claim.world_size ? "SLURM_NTASKS" : claim.size_name;
  }
  return claim;
}

void require_complete(const Claim& claim) {
  const auto missing = [&](const char* name, const char* beside, int value) {
    fail<DistributedError>(environment_where, "expected ", name, " to be set together with ", beside, "=", value,
                           ", got nothing; start every process through the launcher, or unset ", beside);
  };
  if (!claim.world_size) {
    missing(claim.size_name, claim.launcher->rank, *claim.rank);
  } else if (!claim.rank && *claim.world_size > 1) {
    missing(claim.launcher->rank, claim.size_name, *claim.world_size);
  }
  check<DistributedError>(claim.rank.value_or(0) < *claim.world_size, environment_where, "expected ",
                          claim.launcher->rank, " below ", claim.size_name, "=", *claim.world_size, ", got ",
                          claim.rank.value_or(0));
}

/// Throws if `other`, which may be incomplete, contradicts `claim`.
void require_agreement(const Claim& claim, const Claim& other) {
  const auto compare = [&](const char* name, int value, const char* other_name, std::optional<int> other_value) {
    check<DistributedError>(!other_value || *other_value == value, environment_where, "expected ", other_name,
                            " to equal ", name, "=", value, ", got ", other_value.value_or(0),
                            "; unset the variables of the launcher that did not start this process");
  };
  compare(claim.size_name, *claim.world_size, other.size_name, other.world_size);
  compare(claim.launcher->rank, claim.rank.value_or(0), other.launcher->rank, other.rank);
}

/// Returns the claim of the innermost launcher; empty without one.
Claim choose_claim(const Reader& read) {
  const Claim by_hand = read_claim(read, torchrun);
  if (read.text("TORCHELASTIC_RUN_ID") && by_hand.rank && by_hand.world_size) {
    return by_hand;
  }
  Claim found = read_claim(read, open_mpi);
  const Claim of_slurm = read_slurm_step(read);
  if (found.empty()) {
    found = read_claim(read, pmi);
    // `srun --mpi=pmi2` sets PMI's variables too; those of an mpiexec inside a step differ from Slurm's.
    if (found.rank == of_slurm.rank && found.world_size == of_slurm.world_size) {
      found = of_slurm;
    }
  }
  found = found.empty() ? of_slurm : found;
  if (found.empty() || (found.launcher == &slurm && found.world_size == 1 && !by_hand.empty())) {
    return by_hand;
  }
  require_complete(found);
  require_agreement(found, by_hand);
  return found;
}

/// Returns the first of two variables that is set, as a number.
std::optional<int> first_number(const Reader& read, const char* const (&names)[2], int low, int high) {
  const auto value = read.number(names[0], low, high);
  return value ? value : read.number(names[1], low, high);
}

std::optional<int> local_size_of_slurm(const Reader& read) {
  if (read.number("SLURM_STEP_NUM_NODES", 1, unlimited) == 1) {
    return read.number("SLURM_STEP_NUM_TASKS", 1, unlimited);
  }
  for (const char* const list : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = read.text(list);
    const auto node = read.number("SLURM_NODEID", 0, unlimited);
    const auto tasks = text && node ? detail::slurm_tasks_on_node(*text, *node) : std::nullopt;
    if (tasks) {
      return tasks;
    }
  }
  return read.number("SLURM_NTASKS_PER_NODE", 1, unlimited);
}

void read_local(const Reader& read, const Launcher& launcher, ProcessIdentity& identity) {
  const auto size = &launcher == &slurm ? local_size_of_slurm(read)
                                        : first_number(read, launcher.local_world_size, 1, identity.world_size);
  identity.local_world_size = std::min(size.value_or(0), identity.world_size);
  const auto rank = first_number(read, launcher.local_rank, 0, unlimited);
  const bool known = identity.local_world_size > 0;
  check<DistributedError>(rank.value_or(0) < (known ? identity.local_world_size : identity.world_size),
                          environment_where, "expected ", launcher.local_rank[0], " below ",
                          !known                ? launcher.world_size
                          : &launcher == &slurm ? "the number of tasks on this node"
                                                : launcher.local_world_size[0],
                          "=", known ? identity.local_world_size : identity.world_size, ", got ", rank.value_or(0));
  if (!rank && identity.local_world_size == identity.world_size) {
    identity.local_rank = identity.rank;
  } else {
    identity.local_rank = rank.value_or(0);
  }
}

/// Returns the launcher's job name, equal on all ranks and machines.
std::string job_name(const Reader& read, const Launcher& launcher) {
  std::string name;
  const auto add = [&](std::initializer_list<const char*> variables) {
    for (const char* const variable : variables) {
      if (const auto value = read.text(variable)) {
        name += concat(name.empty() ? "" : " ", variable, "=", *value);
      }
    }
  };
  if (&launcher == &torchrun) {
    add({"TORCHELASTIC_RUN_ID"});
  } else if (&launcher == &open_mpi) {
    // The first is set by Open MPI 5 too; the last is a random number.
    add({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports"});
  } else if (&launcher == &slurm) {
    add({"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
  } else {
    add({"PMI_JOBID"});
  }
  return name;
}

/// Sets Slurm's first node and a port of the step, unless the user sets others.
void read_slurm_master(const Reader& read, ProcessIdentity& identity) {
  const auto count = [&](const char* name, const char* old_name) -> std::optional<std::uint64_t> {
    const auto text = read.text(name) ? read.text(name) : read.text(old_name);
    std::uint64_t value = 0;
    return text && std::from_chars(text->data(), text->data() + text->size(), value).ec == std::errc()
               ? std::optional(value)
               : std::nullopt;
  };
  const auto list = read.text("SLURM_STEP_NODELIST") ? read.text("SLURM_STEP_NODELIST") : read.text("SLURM_NODELIST");
  const auto job = count("SLURM_JOB_ID", "SLURM_JOBID");
  const auto step = count("SLURM_STEP_ID", "SLURM_STEPID");
  if (identity.master_address.empty() && list) {
    const auto host = detail::first_slurm_host(*list);
    check<DistributedError>(host.has_value(), environment_where,
                            "expected a list of nodes such as node[01-03,7],gpu3 in SLURM_STEP_NODELIST, got ",
                            quote(*list), "; set MASTER_ADDR to the host of rank 0");
    identity.master_address = *host;
  }
  if (identity.master_port == 0 && job) {
    identity.master_port = detail::slurm_port(*job, step.value_or(0));
  }
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

ProcessIdentity read_process_identity(const Environment& environment) {
  const Reader read(environment);
  ProcessIdentity identity;
  identity.master_address = read.text("MASTER_ADDR").value_or("");
  identity.master_port = read.number("MASTER_PORT", 1, 65535).value_or(0);
  identity.launcher_hosts_store = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  identity.restart_count = read.number("TORCHELASTIC_RESTART_COUNT", 0, unlimited).value_or(0);
  const Claim claim = choose_claim(read);
  if (claim.empty()) {
    identity.local_world_size = 1;
    return identity;
  }
  require_complete(claim);
  const Launcher& launcher = *claim.launcher;
  identity.launcher = launcher.name;
  identity.world_size = *claim.world_size;
  identity.rank = claim.rank.value_or(0);
  identity.job = job_name(read, launcher);
  read_local(read, launcher, identity);
  const bool one_machine = identity.local_world_size == identity.world_size;
  if (&launcher == &slurm && identity.distributed() && !(one_machine && identity.master_address.empty())) {
    read_slurm_master(read, identity);
  }
  return identity;
}

}  // namespace danling::inline v0
