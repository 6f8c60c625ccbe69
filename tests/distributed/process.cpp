#include <danling/distributed/process.hpp>

#include <stdlib.h>

#include <map>

#include <danling/core/error.hpp>

#include <support/error.hpp>

namespace {

using Variables = std::map<std::string, std::string>;

danling::ProcessIdentity identity_of(const Variables& variables) {
  return danling::read_process_identity([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::string refusal_of(const Variables& variables) {
  return danling_test::error_of<danling::DistributedError>([&] { identity_of(variables); });
}

TEST_CASE("read_process_identity: without a launcher it is a world of one", "[distributed]") {
  for (const auto& variables : {Variables{}, Variables{{"RANK", ""}, {"WORLD_SIZE", ""}}}) {
    const auto identity = identity_of(variables);
    CHECK(identity.rank == 0);
    CHECK(identity.world_size == 1);
    CHECK(identity.local_rank == 0);
    CHECK(identity.local_world_size == 1);
    CHECK(identity.master_address.empty());
    CHECK(identity.master_port == 0);
    CHECK(identity.restart_count == 0);
    CHECK(identity.launcher == "none");
    CHECK_FALSE(identity.distributed());
    CHECK(identity.is_main_process());
    CHECK(identity.is_local_main_process());
  }
}

TEST_CASE("read_process_identity: torchrun's variables", "[distributed]") {
  const auto identity = identity_of({{"RANK", "5"},
                                     {"WORLD_SIZE", "8"},
                                     {"LOCAL_RANK", "1"},
                                     {"LOCAL_WORLD_SIZE", "4"},
                                     {"MASTER_ADDR", "node0"},
                                     {"MASTER_PORT", "29400"},
                                     {"TORCHELASTIC_RESTART_COUNT", "2"}});
  CHECK(identity.rank == 5);
  CHECK(identity.world_size == 8);
  CHECK(identity.local_rank == 1);
  CHECK(identity.local_world_size == 4);
  CHECK(identity.master_address == "node0");
  CHECK(identity.master_port == 29400);
  CHECK(identity.restart_count == 2);
  CHECK(identity.launcher == "torchrun");
  CHECK(identity.distributed());
  CHECK_FALSE(identity.is_main_process());
  CHECK_FALSE(identity.is_local_main_process());
}

TEST_CASE("read_process_identity: Open MPI's variables, also inside a Slurm step", "[distributed]") {
  const auto identity = identity_of({{"OMPI_COMM_WORLD_RANK", "3"},
                                     {"OMPI_COMM_WORLD_SIZE", "4"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                     {"SLURM_PROCID", "0"},
                                     {"SLURM_STEP_NUM_TASKS", "2"}});
  CHECK(identity.rank == 3);
  CHECK(identity.world_size == 4);
  CHECK(identity.local_rank == 1);
  CHECK(identity.local_world_size == 2);
  CHECK(identity.launcher == "openmpi");
}

TEST_CASE("read_process_identity: a Slurm step is a world, an allocation without one is not", "[distributed]") {
  const auto step = identity_of({{"SLURM_PROCID", "6"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "2"}});
  CHECK(step.rank == 6);
  CHECK(step.world_size == 8);
  CHECK(step.local_rank == 2);
  CHECK(step.local_world_size == 0);
  CHECK(step.launcher == "slurm");
  const auto script = identity_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}});
  CHECK(script.world_size == 1);
  CHECK(script.launcher == "none");
}

TEST_CASE("read_process_identity: a Slurm rank above 0 is in a step, whose size SLURM_NTASKS says too",
          "[distributed]") {
  const auto step = identity_of({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}});
  CHECK(step.rank == 1);
  CHECK(step.world_size == 2);
  CHECK(step.launcher == "slurm");
  CHECK(refusal_of({{"SLURM_PROCID", "1"}}) ==
        "[distributed.environment] expected SLURM_STEP_NUM_TASKS to be set beside SLURM_PROCID=1, got nothing; start "
        "every process through the launcher, or unset SLURM_PROCID");
}

TEST_CASE("read_process_identity: PMI's variables, as MPICH and Intel MPI set them", "[distributed]") {
  const auto identity =
      identity_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}});
  CHECK(identity.rank == 2);
  CHECK(identity.world_size == 4);
  CHECK(identity.local_rank == 0);
  CHECK(identity.local_world_size == 2);
  CHECK(identity.launcher == "mpich");
  CHECK(refusal_of({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}) ==
        "[distributed.environment] expected PMI_RANK below PMI_SIZE=4, got 4");
  // Of PMIx a process learns its number alone.
  CHECK(identity_of({{"PMIX_RANK", "1"}}).launcher == "none");
}

TEST_CASE("read_process_identity: what cannot be is refused by name", "[distributed]") {
  CHECK(refusal_of({{"RANK", "one"}, {"WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected RANK to be a whole number, got 'one'");
  CHECK(refusal_of({{"RANK", "1.5"}, {"WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected RANK to be a whole number, got '1.5'");
  CHECK(refusal_of({{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected RANK to be a whole number, got '99999999999999999999'");
  CHECK(refusal_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected RANK to be at least 0, got -1");
  CHECK(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}) ==
        "[distributed.environment] expected WORLD_SIZE to be at least 1, got 0");
  CHECK(refusal_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected RANK below WORLD_SIZE=2, got 2");
  CHECK(refusal_of({{"WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected RANK to be set beside WORLD_SIZE=2, got nothing; start every process "
        "through the launcher, or unset WORLD_SIZE");
  CHECK(refusal_of({{"RANK", "1"}}) ==
        "[distributed.environment] expected WORLD_SIZE to be set beside RANK=1, got nothing; start every process "
        "through the launcher, or unset RANK");
  CHECK(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}) ==
        "[distributed.environment] expected LOCAL_RANK below WORLD_SIZE=2, got 2");
  CHECK(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "8"}}) ==
        "[distributed.environment] expected LOCAL_WORLD_SIZE between 1 and 4, got 8");
  CHECK(refusal_of({{"MASTER_PORT", "70000"}}) ==
        "[distributed.environment] expected MASTER_PORT between 1 and 65535, got 70000");
  CHECK(refusal_of({{"TORCHELASTIC_RESTART_COUNT", "-3"}}) ==
        "[distributed.environment] expected TORCHELASTIC_RESTART_COUNT to be at least 0, got -3");
}

TEST_CASE("read_process_identity: reads this process's own environment", "[distributed]") {
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  const auto identity = danling::read_process_identity();
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  CHECK(identity.rank == 1);
  CHECK(identity.world_size == 2);
}

TEST_CASE("read_process_identity: knows when torchrun's agent listens in place of rank 0", "[distributed]") {
  Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  CHECK(identity_of(variables).launcher_listens);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  CHECK_FALSE(identity_of(variables).launcher_listens);
  CHECK_FALSE(identity_of({}).launcher_listens);
}

}  // namespace
