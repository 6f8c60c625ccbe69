#include <distributed/cores.hpp>

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace danling::inline v0::detail {
namespace {

namespace fs = std::filesystem;

std::string text_of_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Joins `part` to `root`, ignoring its leading slash.
fs::path below(const fs::path& root, const std::string& part) { return root / fs::path(part).relative_path(); }

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// A mount point of a cgroup hierarchy, and the group at its root.
struct Mount {
  std::string point;
  std::string top;
};

/// Finds the mount of cgroup v2, or of v1's CPU controller.
std::optional<Mount> find_mount(const fs::path& root, bool unified) {
  std::ifstream mounts(root / "proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    // 25 20 0:22 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) {
      continue;
    }
    std::istringstream front(line.substr(0, dash));
    std::istringstream back(line.substr(dash + 3));
    std::string skipped, top, point, type, source, options;
    front >> skipped >> skipped >> skipped >> top >> point;
    back >> type >> source >> options;
    if (type == (unified ? "cgroup2" : "cgroup") && (unified || has_word(options, "cpu"))) {
      return Mount{point, top};
    }
  }
  return std::nullopt;
}

/// Returns the limit of one group.
std::optional<double> group_quota(const fs::path& group, bool unified) {
  double quota = 0;
  double period = 0;
  if (unified) {
    std::istringstream in(text_of_file(group / "cpu.max"));  // "max 100000" without a limit
    in >> quota >> period;
  } else {
    std::istringstream(text_of_file(group / "cpu.cfs_quota_us")) >> quota;  // -1 without a limit
    std::istringstream(text_of_file(group / "cpu.cfs_period_us")) >> period;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

std::vector<int> allowed_cpus(pid_t pid) {
  // The kernel rejects a set that is smaller than its own.
  for (int count = 1024; count <= 1 << 20; count *= 2) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(count));
    const std::size_t size = CPU_ALLOC_SIZE(static_cast<std::size_t>(count));
    std::vector<int> cpus;
    const bool known = sched_getaffinity(pid, size, set) == 0;
    const bool too_small = !known && errno == EINVAL;
    for (int cpu = 0; known && cpu < count; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, set)) {
        cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!too_small) {
      return cpus;
    }
  }
  return {};
}

int count_cores(const std::vector<int>& cpus, const fs::path& root) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string name = "cpu" + std::to_string(cpu);
    const std::string siblings = text_of_file(root / "sys/devices/system/cpu" / name / "topology/thread_siblings_list");
    cores.insert(siblings.empty() ? name : siblings);
  }
  return static_cast<int>(cores.size());
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  std::ifstream groups(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // "0::/user.slice" of version 2, "3:cpu,cpuacct:/docker/1f" of version 1
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    const auto mount = unified || has_word(controllers, "cpu") ? find_mount(root, unified) : std::nullopt;
    if (!mount) {
      continue;
    }
    // In a container, the root of the mount may be a group inside the host's hierarchy.
    const fs::path path = fs::path(line.substr(second + 1)).lexically_relative(mount->top);
    const fs::path top = below(root, mount->point);
    fs::path group = path.empty() || *path.begin() == ".." ? top : (top / path).lexically_normal();
    // The limits of all parent groups apply.
    while (true) {
      const auto quota = group_quota(group, unified);
      least = quota && quota < least.value_or(*quota + 1) ? quota : least;
      if (group == top || group == group.parent_path() || group.native().size() <= top.native().size()) {
        break;
      }
      group = group.parent_path();
    }
  }
  return least;
}

int share_cores(const CoreShares& shares, int processes) {
  const double whole = std::min<double>(shares.whole, shares.quota.value_or(shares.whole));
  const int share = static_cast<int>(std::floor(whole / std::max(1, processes)));
  return std::max(1, std::min(shares.allowed, share));
}

}  // namespace danling::inline v0::detail
