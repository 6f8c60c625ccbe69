// Programs that real launchers start: torchrun, Open MPI, MPICH and Slurm, where the machine has them.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include <ATen/ops/full.h>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <support/environment.hpp>
#include <support/error.hpp>
#include <support/ranks.hpp>
#include <support/temp_dir.hpp>

namespace launched_test {

using danling::detail::concat;
using danling_test::TempDir;
using danling_test::Variable;

/// The program that launchers start: this one, for the case that is hidden from a usual run.
constexpr const char* rank_program = "program of one rank";

/// The program of a launched rank: writes its identity into the folder of its test.
TEST_CASE("program of one rank", "[.]") {
  const char* const folder = std::getenv("DANLING_TEST_FOLDER");
  if (folder == nullptr) {  // nobody has launched it
    return;
  }
  std::string text;
  std::string name = "before";
  try {
    at::set_num_threads(1);
    const auto identity = danling::read_process_identity();
    name = std::to_string(identity.rank);
    danling::GroupOptions options;
    options.timeout = std::chrono::seconds(60);
    {
      const auto group = danling::Group::connect(identity, options);
      at::Tensor sum = at::full({1}, 1 << identity.rank, at::kLong);
      group.all_reduce(sum);
      text = concat(identity.launcher, " ", identity.rank, "/", identity.world_size, " local ", identity.local_rank,
                    "/", identity.local_world_size, " sum ", sum.item().toLong());
    }
    // The next group of the same processes, while the last is gone on some of them.
    const auto next = danling::Group::connect(identity, options);
    text += concat(" again ", next.all_gather(std::to_string(identity.rank)).back());
  } catch (const danling::Error& error) {
    text = error.what();
  }
  danling_test::write_file(std::filesystem::path(folder) / (name + "-" + std::to_string(getpid())), text);
}

std::string self() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// Whether this user can run the program.
bool installed(const std::string& program) {
  // Open MPI refuses root even there.
  const char* const as_root = program == "mpirun.openmpi" && geteuid() == 0 ? " --allow-run-as-root" : "";
  return std::system((program + as_root + " --help >/dev/null 2>&1").c_str()) == 0;
}

/// Runs a command of the shell in which `%` stands for the program of one rank, and returns what the ranks say.
std::vector<std::string> launch(std::string command, const std::filesystem::path& folder) {
  const std::string program = "'" + self() + "' '" + rank_program + "'";
  for (std::size_t at = 0; (at = command.find('%', at)) != std::string::npos; at += program.size()) {
    command.replace(at, 1, program);
  }
  std::filesystem::create_directories(folder);
  const Variable out("DANLING_TEST_FOLDER", folder.string());
  const int status = std::system(("{ " + command + "; } >'" + (folder / "log").string() + "' 2>&1").c_str());
  INFO(command << "\n" << danling_test::read_file(folder / "log"));
  CHECK(status == 0);
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().filename() != "log") {
      files.push_back(file.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const auto& file : files) {
    texts.push_back(danling_test::read_file(file));
  }
  return texts;
}

std::string open_mpi(int ranks) {
  return concat("mpirun.openmpi ", geteuid() == 0 ? "--allow-run-as-root " : "", "--oversubscribe -n ", ranks, " ");
}

TEST_CASE("Group: mpirun of Open MPI starts ranks that find each other", "[distributed][launched]") {
  if (!installed("mpirun.openmpi")) {
    WARN("skipped: no mpirun.openmpi");
    return;
  }
  const TempDir folder;
  CHECK(launch(open_mpi(3) + "%", folder.path()) == std::vector<std::string>{"openmpi 0/3 local 0/3 sum 7 again 2",
                                                                             "openmpi 1/3 local 1/3 sum 7 again 2",
                                                                             "openmpi 2/3 local 2/3 sum 7 again 2"});
}

TEST_CASE("Group: mpiexec of MPICH starts ranks that find each other, also through a script",
          "[distributed][launched]") {
  if (!installed("mpiexec.hydra")) {
    WARN("skipped: no mpiexec.hydra");
    return;
  }
  const TempDir folder;
  const std::vector<std::string> expected = {"mpich 0/2 local 0/2 sum 3 again 1", "mpich 1/2 local 1/2 sum 3 again 1"};
  CHECK(launch("mpiexec.hydra -n 2 %", folder / "direct") == expected);
  CHECK(launch("mpiexec.hydra -n 2 sh -c \"%; true\"", folder / "script") == expected);
}

TEST_CASE("Group: torchrun starts ranks that find each other", "[distributed][launched]") {
  if (!installed("torchrun")) {
    WARN("skipped: no torchrun");
    return;
  }
  const TempDir folder;
  CHECK(launch("torchrun --nproc-per-node=2 --no-python %", folder.path()) ==
        std::vector<std::string>{"torchrun 0/2 local 0/2 sum 3 again 1", "torchrun 1/2 local 1/2 sum 3 again 1"});
}

TEST_CASE("Group: two jobs at once on one machine do not meet", "[distributed][launched]") {
  const TempDir folder;
  const auto twice = [&](const std::string& command) {
    std::vector<std::string> first;
    std::vector<std::string> second;
    // The folder is in the environment, which threads share: the second job's is in its command.
    const std::string other = (folder / "second").string();
    std::filesystem::remove_all(folder.path() / "first");
    std::filesystem::remove_all(other);
    std::filesystem::create_directories(other);
    first = launch(command + " & DANLING_TEST_FOLDER='" + other + "' " + command + "; wait", folder / "first");
    for (const auto& file : std::filesystem::directory_iterator(other)) {
      second.push_back(danling_test::read_file(file.path()));
    }
    std::sort(second.begin(), second.end());
    CHECK(first == second);
    return first;
  };
  if (installed("mpirun.openmpi")) {
    CHECK(twice(open_mpi(2) + "%") ==
          std::vector<std::string>{"openmpi 0/2 local 0/2 sum 3 again 1", "openmpi 1/2 local 1/2 sum 3 again 1"});
  }
  if (installed("mpiexec.hydra")) {
    CHECK(twice("mpiexec.hydra -n 2 %") ==
          std::vector<std::string>{"mpich 0/2 local 0/2 sum 3 again 1", "mpich 1/2 local 1/2 sum 3 again 1"});
  }
}

}  // namespace launched_test
