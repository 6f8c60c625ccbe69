#include <distributed/ancestors.hpp>

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include <danling/core/format.hpp>

namespace danling::inline v0::detail {
namespace {

std::string read_proc(pid_t pid, const char* file) {
  std::ifstream in(concat("/proc/", pid, "/", file), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns field `number` of /proc/<pid>/stat, counted from 1. Field 2 is a name, which may contain spaces and
/// brackets.
std::string stat_field(pid_t pid, int number) {
  const std::string stat = read_proc(pid, "stat");
  const std::size_t name_end = stat.rfind(')');
  std::istringstream fields(name_end == std::string::npos ? "" : stat.substr(name_end + 1));
  std::string field;
  for (int i = 2; i < number && fields >> field; ++i) {
  }
  return fields ? field : "";
}

}  // namespace

pid_t launcher_process(const ProcessIdentity& identity) {
  const char* const variable = identity.launcher == "openmpi" ? "OMPI_COMM_WORLD_RANK"
                               : identity.launcher == "mpich" ? "PMI_RANK"
                               : identity.launcher == "slurm" ? "SLURM_PROCID"
                                                              : "RANK";
  // A zero byte ends each entry of an environment.
  const std::string entry = std::string(1, '\0') + concat(variable, "=", identity.rank) + std::string(1, '\0');
  pid_t pid = getppid();
  while (pid > 1 && (std::string(1, '\0') + read_proc(pid, "environ")).find(entry) != std::string::npos) {
    const std::string parent = stat_field(pid, 4);
    pid = parent.empty() ? 0 : static_cast<pid_t>(std::stol(parent));
  }
  return pid;
}

std::string process_name(pid_t pid) { return concat(pid, " ", stat_field(pid, 22)); }

}  // namespace danling::inline v0::detail
