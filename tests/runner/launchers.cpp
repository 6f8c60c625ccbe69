// Programs that a launcher starts several times.
#include "fixture.hpp"

namespace runner_test {

TEST_CASE("TorchRunner: several processes are an error that names the variable of the launcher", "[runner]") {
  const auto [rank, size] = GENERATE(table<const char*, const char*>({{"PMI_RANK", "PMI_SIZE"},
                                                                      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                                                      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                                      {"RANK", "WORLD_SIZE"}}));
  ::setenv(rank, "1", 1);
  ::setenv(size, "2", 1);
  const Folder folder;
  std::string error;
  {
    TinyRunner runner{TinyConfig(folder)};
    ::unsetenv(rank);
    ::unsetenv(size);
    error = error_of<dl::DistributedError>([&] { runner.initialize(); });
  }
  CHECK(error == std::string("[runner.init_distributed] expected one process, got ") + size +
                     "=2; this release trains in one process: start one, or set " + size + "=1");
}

}  // namespace runner_test
