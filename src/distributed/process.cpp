#include <danling/distributed/process.hpp>

#include <charconv>
#include <cstdlib>

#include <danling/core/error.hpp>

namespace danling::inline v0 {
namespace {

constexpr int unlimited = 1 << 24;

/// Environment variables of one launcher.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* other_world_size = nullptr;  ///< counts only with a rank above 0
};

constexpr Launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    // SLURM_NTASKS is set in an allocation without a step too, where only one process runs.
    {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_NTASKS"},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

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
    check<DistributedError>(error == std::errc() && stop == end, "distributed.environment", "expected ", name,
                            " to be a whole number, got ", quote(*value));
    if (high == unlimited) {
      check<DistributedError>(parsed >= low, "distributed.environment", "expected ", name, " to be at least ", low,
                              ", got ", parsed);
    } else {
      check<DistributedError>(parsed >= low && parsed <= high, "distributed.environment", "expected ", name,
                              " between ", low, " and ", high, ", got ", parsed);
    }
    return parsed;
  }

 private:
  const Environment& environment_;
};

bool read_launcher(const Reader& read, const Launcher& launcher, ProcessIdentity& identity) {
  auto world_size = read.number(launcher.world_size, 1, unlimited);
  const auto rank = read.number(launcher.rank, 0, unlimited);
  const char* size_name = launcher.world_size;
  if (!world_size && rank.value_or(0) > 0 && launcher.other_world_size != nullptr) {
    world_size = read.number(launcher.other_world_size, 1, unlimited);
    size_name = world_size ? launcher.other_world_size : size_name;
  }
  const bool step_of_slurm = std::string_view(launcher.name) != "slurm" || world_size || rank.value_or(0) > 0;
  if ((!world_size && !rank) || !step_of_slurm) {
    return false;
  }
  check<DistributedError>(rank.has_value() || *world_size == 1, "distributed.environment", "expected ", launcher.rank,
                          " to be set beside ", launcher.world_size, "=", world_size.value_or(1),
                          ", got nothing; start every process through the launcher");
  check<DistributedError>(world_size.has_value() || *rank == 0, "distributed.environment", "expected ",
                          launcher.world_size, " to be set beside ", launcher.rank, "=", rank.value_or(0),
                          ", got nothing; start every process through the launcher");
  identity.world_size = world_size.value_or(1);
  identity.rank = rank.value_or(0);
  check<DistributedError>(identity.rank < identity.world_size, "distributed.environment", "expected ", launcher.rank,
                          " below ", size_name, "=", identity.world_size, ", got ", identity.rank);

  identity.local_world_size = read.number(launcher.local_world_size, 1, identity.world_size).value_or(0);
  const int local_limit = identity.local_world_size > 0 ? identity.local_world_size : identity.world_size;
  identity.local_rank = read.number(launcher.local_rank, 0, local_limit - 1).value_or(0);
  identity.launcher = launcher.name;
  return true;
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
  for (const auto& launcher : launchers) {
    if (read_launcher(read, launcher, identity)) {
      break;
    }
  }
  if (identity.launcher == "none") {
    identity.local_world_size = 1;
  }
  identity.master_address = read.text("MASTER_ADDR").value_or("");
  identity.master_port = read.number("MASTER_PORT", 1, 65535).value_or(0);
  identity.launcher_listens = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  identity.restart_count = read.number("TORCHELASTIC_RESTART_COUNT", 0, unlimited).value_or(0);
  return identity;
}

}  // namespace danling::inline v0
