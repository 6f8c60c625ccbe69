#include <danling/distributed/process.hpp>

#include <map>

#include <danling/core/error.hpp>

#include <support/environment.hpp>
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
        "[distributed.environment] expected SLURM_STEP_NUM_TASKS to be set together with SLURM_PROCID=1, got nothing; "
        "start "
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
  CHECK(
      refusal_of({{"WORLD_SIZE", "2"}}) ==
      "[distributed.environment] expected RANK to be set together with WORLD_SIZE=2, got nothing; start every process "
      "through the launcher, or unset WORLD_SIZE");
  CHECK(
      refusal_of({{"RANK", "1"}}) ==
      "[distributed.environment] expected WORLD_SIZE to be set together with RANK=1, got nothing; start every process "
      "through the launcher, or unset RANK");
  CHECK(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}) ==
        "[distributed.environment] expected LOCAL_RANK below WORLD_SIZE=2, got 2");
  CHECK(
      refusal_of({{"RANK", "0"}}) ==
      "[distributed.environment] expected WORLD_SIZE to be set together with RANK=0, got nothing; start every process "
      "through the launcher, or unset RANK");
  CHECK(refusal_of({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected LOCAL_RANK below LOCAL_WORLD_SIZE=2, got 2");
  CHECK(refusal_of({{"MASTER_PORT", "29500a"}}) ==
        "[distributed.environment] expected MASTER_PORT to be a whole number, got '29500a'");
  CHECK(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "8"}}) ==
        "[distributed.environment] expected LOCAL_WORLD_SIZE between 1 and 4, got 8");
  CHECK(refusal_of({{"MASTER_PORT", "70000"}}) ==
        "[distributed.environment] expected MASTER_PORT between 1 and 65535, got 70000");
  CHECK(refusal_of({{"TORCHELASTIC_RESTART_COUNT", "-3"}}) ==
        "[distributed.environment] expected TORCHELASTIC_RESTART_COUNT to be at least 0, got -3");
}

TEST_CASE("read_process_identity: launchers that contradict each other are refused with both values", "[distributed]") {
  const std::string advice = "; unset the variables of the launcher that did not start this process";
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  // One variable or both of another run are in the environment.
  variables["WORLD_SIZE"] = "4";
  CHECK(refusal_of(variables) ==
        "[distributed.environment] expected WORLD_SIZE to equal OMPI_COMM_WORLD_SIZE=2, got 4" + advice);
  variables["WORLD_SIZE"] = "2";
  CHECK(identity_of(variables).launcher == "openmpi");
  variables["RANK"] = "0";
  CHECK(refusal_of(variables) ==
        "[distributed.environment] expected RANK to equal OMPI_COMM_WORLD_RANK=1, got 0" + advice);
  variables["RANK"] = "1";
  CHECK(identity_of(variables).launcher == "openmpi");
  variables.erase("WORLD_SIZE");
  CHECK(identity_of(variables).rank == 1);

  CHECK(refusal_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}}) ==
        "[distributed.environment] expected WORLD_SIZE to equal PMI_SIZE=1, got 2" + advice);
  CHECK(refusal_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "4"}}) ==
        "[distributed.environment] expected WORLD_SIZE to equal SLURM_STEP_NUM_TASKS=2, got 4" + advice);
}

TEST_CASE("read_process_identity: torchrun's agent counts before the launcher that has started it", "[distributed]") {
  const Variables agent = {{"TORCHELASTIC_RUN_ID", "run 7"},
                           {"RANK", "5"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "4"}};
  // One agent per node, started by srun or mpirun.
  for (const Variables& outer :
       {Variables{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}},
        Variables{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}}) {
    Variables variables = agent;
    variables.insert(outer.begin(), outer.end());
    const auto identity = identity_of(variables);
    CHECK(identity.launcher == "torchrun");
    CHECK(identity.rank == 5);
    CHECK(identity.local_world_size == 4);
    CHECK(identity.job == "TORCHELASTIC_RUN_ID=run 7");
  }
}

TEST_CASE("read_process_identity: a Slurm step of one task gives way to RANK and WORLD_SIZE", "[distributed]") {
  // An interactive allocation is such a step; the user starts the ranks by hand.
  const auto identity =
      identity_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
  CHECK(identity.launcher == "torchrun");
  CHECK(identity.rank == 1);
}

TEST_CASE("read_process_identity: mpiexec in a Slurm step is the nearer launcher, srun's PMI is Slurm",
          "[distributed]") {
  // Its proxy is the one task of a step on each node.
  const auto mpiexec = identity_of({{"SLURM_PROCID", "0"},
                                    {"SLURM_STEP_NUM_TASKS", "1"},
                                    {"PMI_RANK", "1"},
                                    {"PMI_SIZE", "2"},
                                    {"MPI_LOCALRANKID", "1"},
                                    {"MPI_LOCALNRANKS", "2"}});
  CHECK(mpiexec.launcher == "mpich");
  CHECK(mpiexec.rank == 1);
  CHECK(mpiexec.world_size == 2);
  const auto srun =
      identity_of({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  CHECK(srun.launcher == "slurm");
}

TEST_CASE("read_process_identity: a Slurm step on several nodes meets at its first", "[distributed]") {
  Variables variables = {{"SLURM_PROCID", "3"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NUM_NODES", "3"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2),2"},
                         {"SLURM_CLUSTER_NAME", "c"},
                         {"SLURM_JOB_ID", "1234567"},
                         {"SLURM_STEP_ID", "1"},
                         {"SLURM_STEP_NODELIST", "node[01-03]"},
                         {"SLURM_NODELIST", "login,node[01-03]"}};
  const auto identity = identity_of(variables);
  CHECK(identity.local_world_size == 2);
  CHECK(identity.master_address == "node01");
  CHECK(identity.master_port == 15000 + (4567 + 1009) % 10000);
  CHECK(identity.job == "SLURM_CLUSTER_NAME=c SLURM_JOB_ID=1234567 SLURM_STEP_ID=1");
  // The user's word counts more.
  variables["MASTER_ADDR"] = "10.0.0.1";
  variables["MASTER_PORT"] = "29500";
  CHECK(identity_of(variables).master_address == "10.0.0.1");
  CHECK(identity_of(variables).master_port == 29500);
  variables.erase("MASTER_ADDR");
  variables.erase("MASTER_PORT");
  variables["SLURM_LOCALID"] = "2";
  CHECK(refusal_of(variables) ==
        "[distributed.environment] expected SLURM_LOCALID below the number of tasks on this node=2, got 2");
  variables["SLURM_LOCALID"] = "1";
  variables["SLURM_STEP_NODELIST"] = "node[";
  CHECK(refusal_of(variables) ==
        "[distributed.environment] expected a list of nodes such as node[01-03,7],gpu3 in SLURM_STEP_NODELIST, got "
        "'node['; set MASTER_ADDR to the host of rank 0");
}

TEST_CASE("read_process_identity: a Slurm step on one node meets by its name", "[distributed]") {
  const auto identity = identity_of({{"SLURM_PROCID", "1"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_STEP_NUM_NODES", "1"},
                                     {"SLURM_LOCALID", "1"},
                                     {"SLURM_JOB_ID", "12"},
                                     {"SLURM_STEP_ID", "0"},
                                     {"SLURM_STEP_NODELIST", "node7"}});
  CHECK(identity.local_world_size == 2);
  CHECK(identity.master_address.empty());
  CHECK(identity.master_port == 0);
  CHECK(identity.job == "SLURM_JOB_ID=12 SLURM_STEP_ID=0");
}

TEST_CASE("read_process_identity: the name of an Open MPI job, of version 4 and 5", "[distributed]") {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "0"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "prterun-host-4711@1"}};
  CHECK(identity_of(variables).job == "PMIX_NAMESPACE=prterun-host-4711@1");
  variables["PMIX_NAMESPACE"] = "115539969";
  variables["OMPI_MCA_ess_base_jobid"] = "115539969";
  variables["OMPI_MCA_orte_precondition_transports"] = "5dcf16d3d63a0e9f-289cb1dcd87cf908";
  CHECK(identity_of(variables).job ==
        "PMIX_NAMESPACE=115539969 OMPI_MCA_ess_base_jobid=115539969 "
        "OMPI_MCA_orte_precondition_transports=5dcf16d3d63a0e9f-289cb1dcd87cf908");
}

TEST_CASE("read_process_identity: reads this process's own environment", "[distributed]") {
  const danling_test::Variable rank("OMPI_COMM_WORLD_RANK", "1");
  const danling_test::Variable size("OMPI_COMM_WORLD_SIZE", "2");
  const danling_test::Variable torch_rank("RANK", std::nullopt);
  const danling_test::Variable torch_size("WORLD_SIZE", std::nullopt);
  const auto identity = danling::read_process_identity();
  CHECK(identity.rank == 1);
  CHECK(identity.world_size == 2);
}

TEST_CASE("read_process_identity: knows when torchrun's agent listens in place of rank 0", "[distributed]") {
  Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  CHECK(identity_of(variables).launcher_hosts_store);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  CHECK_FALSE(identity_of(variables).launcher_hosts_store);
  CHECK_FALSE(identity_of({}).launcher_hosts_store);
}

}  // namespace
