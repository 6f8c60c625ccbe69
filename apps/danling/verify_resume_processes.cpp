#include "verify_resume_processes.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/telemetry/text.hpp>

#include "verify_resume_compare.hpp"

namespace danling_command {
namespace {

namespace fs = std::filesystem;
using danling::ConfigError;
using danling::detail::concat;

constexpr auto where = "verify-resume";

/// Seconds after SIGTERM until `danling launch` kills ranks that have not ended.
constexpr int grace_seconds = 30;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Returns the children of a process in the order of their start.
std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream in(concat("/proc/", parent, "/task/", parent, "/children"));
  return {std::istream_iterator<pid_t>(in), {}};
}

// Returns the rank of a process that `danling launch` started; nullopt before the process runs the program.
std::optional<int> rank_of(pid_t process) {
  const std::string variables = concat(std::string(1, '\0'), read(concat("/proc/", process, "/environ")));
  const std::string name("\0RANK=", 6);
  const auto at = variables.find(name);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const auto from = at + name.size();
  return number_in(std::string_view(variables).substr(from, variables.find('\0', from) - from));
}

// Formats a value as YAML on one line.
std::string text_of(const danling::ConfigTree* value) {
  std::string out = value != nullptr ? danling::to_yaml(*value) : "null";
  while (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

// Returns the config of the run below `root`, if it saved one.
std::optional<danling::ConfigTree> saved_config(const fs::path& root) {
  for (const auto& path : files_below(root)) {
    if (path.ends_with("/metadata/config.full.yaml")) {
      return danling::from_yaml(read(root / path), path);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Layout> parse_processes(std::string_view text) {
  std::vector<Layout> out;
  for (std::size_t from = 0; from <= text.size();) {
    const auto comma = std::min(text.find(',', from), text.size());
    const auto value = number_in(text.substr(from, comma - from));
    danling::detail::check<ConfigError>(value && *value >= 1 && *value <= 1024, where,
                                        "expected --processes with numbers from 1 to 1024, separated by commas, got ",
                                        danling::detail::quote(text));
    out.push_back({*value});
    from = comma + 1;
  }
  return out;
}

void check_config(const fs::path& root, const std::vector<Layout>& layouts) {
  const auto config = saved_config(root);
  danling::detail::check<ConfigError>(
      config.has_value(), where,
      "expected a program that saves its config, to check parallel.virtual_ranks for several "
      "processes, got no metadata/config.full.yaml; set --record true");
  const auto& tree = *config;
  const auto* parallel = tree.find("parallel");
  const auto* deterministic = tree.find("deterministic");
  const auto* shards = parallel != nullptr ? parallel->find("virtual_ranks") : nullptr;
  const int most = std::max_element(layouts.begin(), layouts.end(), [](const auto& a, const auto& b) {
                     return a.processes < b.processes;
                   })->processes;
  danling::detail::check<ConfigError>(
      shards != nullptr && shards->is_integer() && deterministic != nullptr && deterministic->is_bool() &&
          deterministic->boolean(),
      where, "expected a program whose results do not depend on its number of processes, got parallel.virtual_ranks: ",
      text_of(shards), ", deterministic: ", text_of(deterministic),
      "; add --deterministic true --parallel.virtual_ranks V to its arguments, V a power of two of at least ", most,
      keys_of(layouts).empty() ? "" : "; or set --tolerance, to compare values");
  danling::detail::check<ConfigError>(shards->integer() >= most, where, "expected --processes of at most ",
                                      shards->integer(), " (parallel.virtual_ranks of the program), got ", most);
}

bool forbids_degree_change(const fs::path& root) {
  const auto config = saved_config(root);
  const auto* parallel = config ? config->find("parallel") : nullptr;
  const auto* allowed = parallel != nullptr ? parallel->find("allow_degree_change") : nullptr;
  return allowed != nullptr && allowed->is_bool() && !allowed->boolean();
}

std::vector<std::string> launched(const std::vector<std::string>& program, int processes) {
  std::vector<std::string> out = {fs::read_symlink("/proc/self/exe").string(), "launch",
                                  concat("--workers=", processes), concat("--grace-seconds=", grace_seconds), "--"};
  out.insert(out.end(), program.begin(), program.end());
  return out;
}

std::vector<pid_t> ranks_of(pid_t launcher, int processes) {
  std::vector<pid_t> out(static_cast<std::size_t>(processes), 0);
  for (const pid_t child : children_of(launcher)) {
    const auto rank = rank_of(child);
    if (rank && *rank >= 0 && *rank < processes) {
      out[static_cast<std::size_t>(*rank)] = child;
    }
  }
  return std::find(out.begin(), out.end(), 0) == out.end() ? out : std::vector<pid_t>();
}

std::vector<int> running_ranks(const std::vector<pid_t>& ranks) {
  std::vector<int> out;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string status = read(concat("/proc/", ranks[rank], "/stat"));  // NUMBER (NAME) STATE ...
    const auto name_end = status.rfind(") ");
    if (name_end != std::string::npos && name_end + 2 < status.size() && status[name_end + 2] != 'Z' &&
        status[name_end + 2] != 'X') {
      out.push_back(static_cast<int>(rank));
    }
  }
  return out;
}

LaunchReport read_launch_report(const std::string& output) {
  constexpr std::string_view stuck = "[launch] sends SIGKILL to the workers that still run: rank ";
  constexpr std::string_view ended = "[launch] rank ";
  LaunchReport out;
  for (std::size_t from = 0; from < output.size();) {
    const auto end = std::min(output.find('\n', from), output.size());
    const auto line = std::string_view(output).substr(from, end - from);
    from = end + 1;
    if (line.starts_with(stuck)) {
      out.stuck = line.substr(stuck.size());
    } else if (line.starts_with(ended) && line.find(") was ended by SIGKILL (") != std::string_view::npos) {
      const auto rest = line.substr(ended.size());
      out.killed = number_in(rest.substr(0, rest.find(' ')));
    }
  }
  return out;
}

void adopt_orphans() {
  danling::detail::check<danling::StateError>(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, where,
                                              "expected a kernel that hands orphans to this process (3.4), got none");
}

int reap_orphans(double patience) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience);
  std::set<pid_t> killed;
  for (;;) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0 && errno == ECHILD) {
      return static_cast<int>(killed.size());
    }
    if (ended != 0) {
      continue;
    }
    // Lists the children in each turn, since the death of one may make its children ours.
    if (std::chrono::steady_clock::now() >= deadline) {
      for (const pid_t child : children_of(getpid())) {
        if (kill(child, SIGKILL) == 0) {
          killed.insert(child);
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void ProcessCounts::add_signal(std::optional<int> rank, int signal) {
  auto& count = ranks_[rank.value_or(-1)];
  ++(signal == SIGKILL ? count.kills : count.stops);
}

void ProcessCounts::add_end(int signal, double seconds) {
  double& longest = signal == SIGKILL ? longest_kill_ : longest_stop_;
  longest = std::max(longest, seconds);
}

void ProcessCounts::print() const {
  danling::TextTable starts({"processes", "starts"});
  for (const auto& [layout, count] : starts_) {
    starts.add_row({layout.second, danling::to_text(count)});
  }
  danling::TextTable signals({"signal to", "SIGKILL", "SIGTERM or SIGINT"});
  for (const auto& [rank, count] : ranks_) {
    signals.add_row({rank < 0 ? std::string("all ranks") : concat("rank ", rank), danling::to_text(count.kills),
                     danling::to_text(count.stops)});
  }
  std::printf("\n%s\n", starts.text().c_str());
  if (!signals.empty()) {
    std::printf("\n%s\n", signals.text().c_str());
  }
  if (longest_kill_ > 0) {
    std::printf("\nall ranks had ended at most %s after a kill of one of them\n",
                danling::format_seconds(longest_kill_).c_str());
  }
  if (longest_stop_ > 0) {
    std::printf("%sall ranks had saved and ended at most %s after a signal to one of them\n",
                longest_kill_ > 0 ? "" : "\n", danling::format_seconds(longest_stop_).c_str());
  }
}

}  // namespace danling_command
