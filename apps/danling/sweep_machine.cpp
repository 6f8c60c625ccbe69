#include "sweep_machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include <danling/core/format.hpp>

namespace danling_command {
namespace {

using danling::detail::concat;
namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end != text.data() ? std::optional(out) : std::nullopt;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns the number after `key` at the beginning of a line.
std::optional<std::uint64_t> field(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      const auto at = line.find_first_of("0123456789", key.size());
      return at == std::string::npos ? std::nullopt : number_in(std::string_view(line).substr(at));
    }
  }
  return std::nullopt;
}

/// Calls `visit` with the folders of this process's control group and its parents, of version 2 or of a controller of
/// version 1. In a container the group may be the root.
void visit_groups(std::string_view controller, const std::function<void(const fs::path&, bool second)>& visit) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = names == ",,";
    if (!unified && names.find(concat(",", controller, ",")) == std::string::npos) {
      continue;
    }
    const fs::path root = unified ? fs::path("/sys/fs/cgroup") : fs::path("/sys/fs/cgroup") / controller;
    std::string path = line.substr(second + 1);
    for (;;) {
      visit(fs::path(root.string() + (path == "/" ? "" : path)), unified);
      if (path.empty() || path == "/") {
        break;
      }
      path.resize(path.rfind('/'));
    }
  }
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  double cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                             : static_cast<double>(std::thread::hardware_concurrency());
  visit_groups("cpu", [&](const fs::path& group, bool second) {
    std::optional<std::uint64_t> quota;
    std::optional<std::uint64_t> period;
    if (second) {
      const std::string line = first_line(group / "cpu.max");  // "max 100000" or "150000 100000"
      quota = number_in(line);
      period = line.find(' ') == std::string::npos ? std::nullopt
                                                   : number_in(std::string_view(line).substr(line.find(' ') + 1));
    } else {
      quota = number_in(first_line(group / "cpu.cfs_quota_us"));  // -1: no quota
      period = number_in(first_line(group / "cpu.cfs_period_us"));
    }
    if (quota && period && *period > 0) {
      cores = std::min(cores, static_cast<double>(*quota) / static_cast<double>(*period));
    }
  });
  return std::max(1, static_cast<int>(std::floor(cores)));
}

std::optional<std::uint64_t> available_memory() {
  std::optional<std::uint64_t> out;
  if (const auto kilobytes = field("/proc/meminfo", "MemAvailable:")) {
    out = *kilobytes * 1024;
  }
  visit_groups("memory", [&](const fs::path& group, bool second) {
    const auto most = number_in(first_line(group / (second ? "memory.max" : "memory.limit_in_bytes")));
    const auto used = number_in(first_line(group / (second ? "memory.current" : "memory.usage_in_bytes")));
    if (most && used) {
      const auto cache = field(group / "memory.stat", second ? "inactive_file " : "total_inactive_file ").value_or(0);
      const auto taken = *used > cache ? *used - cache : 0;
      const auto left = *most > taken ? *most - taken : 0;
      out = std::min(out.value_or(left), left);
    }
  });
  return out;
}

std::uint64_t resident_memory(pid_t process) {
  const fs::path folder = concat("/proc/", static_cast<std::int64_t>(process));
  std::uint64_t out = field(folder / "status", "VmRSS:").value_or(0) * 1024;
  std::ifstream children(folder / "task" / std::to_string(process) / "children");
  for (pid_t child = 0; children >> child;) {
    out += resident_memory(child);
  }
  return out;
}

}  // namespace danling_command
