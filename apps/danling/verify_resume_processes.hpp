// danling verify-resume --processes: programs of several processes, started by `danling launch`.
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

/// Parses a list of numbers such as "1,2,4" as layouts. @throws danling::ConfigError
std::vector<Layout> parse_processes(std::string_view text);

/// Checks, by the config that a run saved below `root`, that the bits of the program do not depend on its number of
/// processes. @throws danling::ConfigError with the keys to set
void check_config(const std::filesystem::path& root, const std::vector<Layout>& layouts);

/// Returns true if the config saved below `root` has `parallel.allow_degree_change: false`.
bool forbids_degree_change(const std::filesystem::path& root);

/// Returns the command that starts `program` with so many processes.
std::vector<std::string> launched(const std::vector<std::string>& program, int processes);

/// Returns the processes of the ranks that `launcher` started, by rank; empty until all `processes` run the program.
std::vector<pid_t> ranks_of(pid_t launcher, int processes);

/// Returns the ranks that have not ended.
std::vector<int> running_ranks(const std::vector<pid_t>& ranks);

/// The failures that `danling launch` reported in its output.
struct LaunchReport {
  std::optional<int> killed;  ///< the first failed rank, if SIGKILL ended it
  std::string stuck;          ///< the ranks that did not end after SIGTERM, "1, 3"
};
LaunchReport read_launch_report(const std::string& output);

/// Makes orphaned descendants children of this process, so that `reap_orphans` finds them.
void adopt_orphans();
/// Waits for all adopted processes; kills those that still run after `patience` seconds. Returns their number.
int reap_orphans(double patience);

/// Counts the uses of each number of processes and the interruptions of each rank.
class ProcessCounts {
 public:
  void add_start(const Layout& layout) { ++starts_[{layout.processes, layout.text()}]; }
  /// Adds a signal to one rank; without `rank`, to all.
  void add_signal(std::optional<int> rank, int signal);
  /// Adds the seconds from a signal to one rank to the end of all ranks.
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
