// `danling verify-resume --processes`: programs of several processes, started by `danling launch`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "verify_resume_layouts.hpp"

namespace danling_command {

/// Layouts of the numbers in a list such as "1,2,4". @throws danling::ConfigError
std::vector<Layout> parse_processes(std::string_view text);

/// Checks that the bits of a program do not depend on its number of processes, by the config that its run saved below
/// `root`. @throws danling::ConfigError that says which keys to set
void check_config(const std::filesystem::path& root, const std::vector<Layout>& layouts);

/// Whether the config saved below `root` has `parallel.allow_degree_change: false`.
bool forbids_degree_change(const std::filesystem::path& root);

/// The command that starts `program` in so many processes.
std::vector<std::string> launched(const std::vector<std::string>& program, int processes);

/// The ranks that `launcher` has started, in their order; empty until all `processes` of them run the program.
std::vector<pid_t> ranks_of(pid_t launcher, int processes);

/// The numbers of those that have not ended.
std::vector<int> running_ranks(const std::vector<pid_t>& ranks);

/// What `danling launch` has reported in its output.
struct LaunchReport {
  std::optional<int> killed;  ///< the first failed rank, if SIGKILL ended it
  std::string stuck;          ///< the ranks that did not end after SIGTERM, "1, 3"
};
LaunchReport read_launch_report(const std::string& output);

/// Makes processes whose parent has ended children of this one, so that `reap_orphans` finds them.
void adopt_orphans();
/// Waits for all adopted processes; kills those that still run after `patience` seconds. Returns their number.
int reap_orphans(double patience);

/// How often each number of processes was used, and which ranks were interrupted.
class ProcessCounts {
 public:
  void add_start(const Layout& layout) { ++starts_[{layout.processes, layout.text()}]; }
  /// `rank`: none for all.
  void add_signal(std::optional<int> rank, int signal);
  /// Seconds from a signal to one rank until all ranks had ended.
  void add_end(int signal, double seconds);
  void print() const;

 private:
  struct Signals {
    std::int64_t kills = 0, stops = 0;
  };
  std::map<std::pair<int, std::string>, std::int64_t> starts_;
  std::map<int, Signals> ranks_;  // -1: all
  double longest_kill_ = 0, longest_stop_ = 0;
};

}  // namespace danling_command
