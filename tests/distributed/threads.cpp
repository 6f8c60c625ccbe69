#include <danling/distributed/threads.hpp>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include <danling/core/format.hpp>

#include <distributed/cores.hpp>

#include <support/catch.hpp>
#include <support/ranks.hpp>
#include <support/temp_dir.hpp>

namespace threads_test {

using danling::process_threads;
using danling::ProcessIdentity;
using danling::detail::concat;
using danling_test::TempDir;
using danling_test::write_file;

danling::Environment variables(const std::map<std::string, std::string>& values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

ProcessIdentity ranks(int local) {
  ProcessIdentity identity;
  identity.world_size = identity.local_world_size = local;
  identity.launcher = local > 1 ? "torchrun" : "none";
  return identity;
}

/// Binds this process to `count` of its CPUs.
void bind_to(int count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const auto cpus = danling::detail::allowed_cpus(0);
  for (int i = 0; i < count; ++i) {
    CPU_SET(static_cast<std::size_t>(cpus.at(static_cast<std::size_t>(i))), &set);
  }
  danling_test::expect(sched_setaffinity(0, sizeof set, &set) == 0, "to bind a process");
}

TEST_CASE("process_threads: what the user sets wins", "[distributed]") {
  CHECK(process_threads(ranks(2), variables({{"OMP_NUM_THREADS", "7"}})).reason == "7 threads: OMP_NUM_THREADS=7");
  CHECK(process_threads(ranks(2), variables({{"OMP_NUM_THREADS", "7"}})).threads == 7);
  CHECK(process_threads(ranks(2), variables({{"OMP_NUM_THREADS", "1,4"}})).reason == "1 thread: OMP_NUM_THREADS=1");
  CHECK(process_threads(ranks(2), variables({{"OMP_NUM_THREADS", "7"}, {"MKL_NUM_THREADS", "3"}})).reason ==
        "3 threads: MKL_NUM_THREADS=3");
  for (const char* const nonsense : {"", "0", "-2", "many", "4x"}) {
    const auto threads = process_threads(ranks(1), variables({{"OMP_NUM_THREADS", nonsense}}));
    CHECK_THAT(threads.reason, !ContainsSubstring("OMP_NUM_THREADS"));
  }
}

TEST_CASE("share_cores: the processes of a machine use its cores once", "[distributed]") {
  struct Case {
    danling::detail::CoreShares shares;
    int processes;
    int expected;
  };
  const std::vector<Case> cases = {
      {{.allowed = 8, .whole = 8, .quota = {}}, 1, 8},     // alone
      {{.allowed = 8, .whole = 8, .quota = {}}, 2, 4},     // shared
      {{.allowed = 8, .whole = 8, .quota = {}}, 3, 2},     // two cores stay idle
      {{.allowed = 2, .whole = 2, .quota = {}}, 4, 1},     // more processes than cores
      {{.allowed = 4, .whole = 8, .quota = {}}, 2, 4},     // bound to cores of their own: not divided again
      {{.allowed = 1, .whole = 64, .quota = {}}, 4, 1},    // bound to one core each
      {{.allowed = 32, .whole = 64, .quota = {}}, 4, 16},  // two processes on each of two sockets
      {{.allowed = 8, .whole = 8, .quota = 4.0}, 2, 2},   {{.allowed = 8, .whole = 8, .quota = 2.5}, 1, 2},
      {{.allowed = 8, .whole = 8, .quota = 0.5}, 2, 1},   {{.allowed = 2, .whole = 8, .quota = 100.0}, 2, 2},
  };
  for (const auto& [shares, processes, expected] : cases) {
    INFO(shares.allowed << " of " << shares.whole << " for " << processes);
    CHECK(danling::detail::share_cores(shares, processes) == expected);
  }
}

TEST_CASE("process_threads: cores of the launcher are divided, those of a bound process are not", "[distributed]") {
  const int cpus = static_cast<int>(danling::detail::allowed_cpus(0).size());
  const int cores = danling::detail::count_cores(danling::detail::allowed_cpus(0));
  if (danling::detail::cpu_quota()) {
    WARN("skipped: a CPU quota");
    return;
  }
  CHECK(process_threads(ranks(1), variables({})).reason == concat(cores, cores == 1 ? " thread: " : " threads: ", cores,
                                                                  cores == 1 ? " core" : " cores",
                                                                  " for this process"));
  // The ranks' parent is this process, which is their launcher.
  const auto shared =
      danling_test::run_processes(1, [](int) { return process_threads(ranks(2), variables({})).reason; });
  const int half = std::max(1, cores / 2);
  CHECK(shared[0] == concat(half, half == 1 ? " thread: " : " threads: ", cores, cores == 1 ? " core" : " cores",
                            " for 2 processes"));
  if (cpus > 1 && cores > 1) {
    const auto bound = danling_test::run_processes(1, [](int) {
      bind_to(1);
      return process_threads(ranks(2), variables({})).reason;
    });
    CHECK(bound[0] == "1 thread: the launcher has bound this process to 1 core");
    // All of the launcher's processes share what the user gave to it.
    const auto inherited = danling_test::run_processes(1, [](int) {
      bind_to(1);
      return danling_test::run_processes(1, [](int) { return process_threads(ranks(2), variables({})).reason; })[0];
    });
    CHECK(inherited[0] == "1 thread: 1 core for 2 processes");
  }
}

TEST_CASE("process_threads: Slurm's CPUs per task, or its step's CPUs", "[distributed]") {
  auto identity = ranks(2);
  identity.launcher = "slurm";
  const int cores = danling::detail::count_cores(danling::detail::allowed_cpus(0));
  CHECK(process_threads(identity, variables({{"SLURM_CPUS_PER_TASK", "1"}})).reason ==
        concat("1 thread: SLURM_CPUS_PER_TASK=1 and ", cores, cores == 1 ? " core" : " cores"));
  CHECK(process_threads(identity, variables({{"SLURM_CPUS_PER_TASK", "100000"}})).threads == cores);
}

TEST_CASE("count_cores: hardware threads of one core count once", "[distributed]") {
  const TempDir root;
  for (int cpu = 0; cpu < 8; ++cpu) {
    write_file(root / concat("sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"),
               concat(cpu % 4, ",", cpu % 4 + 4, "\n"));
  }
  CHECK(danling::detail::count_cores({0, 1, 2, 3, 4, 5, 6, 7}, root.path()) == 4);
  CHECK(danling::detail::count_cores({0, 4}, root.path()) == 1);
  CHECK(danling::detail::count_cores({1, 2, 6}, root.path()) == 2);
  // Without the kernel's word each CPU is a core.
  CHECK(danling::detail::count_cores({0, 1, 2}, root / "nothing") == 3);
}

TEST_CASE("cpu_quota: the least of all groups above a process, in both versions", "[distributed]") {
  const TempDir root;
  const auto quota = [&] { return danling::detail::cpu_quota(root.path()); };
  CHECK_FALSE(quota());
  // Version 2: the service may use 3 CPUs, the slice 2.5.
  write_file(root / "proc/self/cgroup", "0::/user.slice/job.service\n");
  write_file(root / "proc/self/mountinfo",
             "24 1 8:1 / / rw,relatime - ext4 /dev/root rw\n"
             "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  write_file(root / "sys/fs/cgroup/user.slice/job.service/cpu.max", "max 100000\n");
  CHECK_FALSE(quota());
  write_file(root / "sys/fs/cgroup/user.slice/job.service/cpu.max", "300000 100000\n");
  CHECK(quota() == 3.0);
  write_file(root / "sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  CHECK(quota() == 2.5);
  // A container that sees the host's path, and its own group at the top of the mount.
  write_file(root / "proc/self/cgroup", "5:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n");
  write_file(root / "proc/self/mountinfo",
             "30 24 0:26 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
             "31 24 0:27 /docker/1f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
  write_file(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write_file(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  CHECK_FALSE(quota());
  write_file(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  CHECK(quota() == 1.5);
  // A container that sees its group as the root.
  write_file(root / "proc/self/cgroup", "4:cpu,cpuacct:/\n");
  CHECK(quota() == 1.5);
}

}  // namespace threads_test
