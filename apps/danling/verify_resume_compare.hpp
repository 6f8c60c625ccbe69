// Compares two runs on disk file by file; reports differences by step and tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "verify_resume_values.hpp"

namespace danling_command {

struct Difference {
  std::string path;  ///< below the workspace root
  std::string text;
};

struct RunCompareOptions {
  std::vector<std::string> ignored;  ///< globs of paths that are not compared
  /// Number of saves that failed by an injected error and were not retried: as many history checkpoints may be missing.
  std::int64_t lost_saves = 0;
  /// History checkpoints that a whole run writes more than once. If the last of these saves fails, an earlier one
  /// remains.
  std::set<std::string> provisional = {};
  /// The run removes old history checkpoints; an injected error may have left one.
  bool removes_history = false;
  ValueRules rules = {};
};

/// Compares all files of two finished runs: metrics, then the history checkpoints in order, then the rest. Ignores
/// logs, attempts/, locks, `previous` (which depends on the interruptions), and entries of one attempt inside files:
/// times, rates, process, host. Compares a checkpoint of shards as a whole, by its name; ignores names of directories
/// and the division into files.
std::vector<Difference> compare_runs(const std::filesystem::path& reference, const std::filesystem::path& run,
                                     const RunCompareOptions& options);

/// Compares the newest checkpoints, `latest`, of two runs with the status "finished".
std::optional<Difference> compare_newest(const std::filesystem::path& reference, const std::filesystem::path& run,
                                         const std::vector<std::string>& ignored, const ValueRules& rules);

/// Compares the metrics and history checkpoints that an interrupted run has written so far. Skips files that were
/// compared and did not change.
class PartialComparison {
 public:
  /// `provisional`: files that a whole run writes more than once, so they may differ before its end.
  PartialComparison(const std::set<std::string>& provisional, const ValueRules& rules)
      : provisional_(provisional), rules_(rules) {}

  std::optional<Difference> check(const std::filesystem::path& reference, const std::filesystem::path& run);

 private:
  const std::set<std::string>& provisional_;
  const ValueRules& rules_;
  std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> same_;
};

/// Returns the group of a file: 0 metrics, 1 history checkpoints, 2 other checkpoints, 3 the rest.
int group_of(const std::string& path);

/// Returns true if `glob`, in which `*` matches any text, matches all of `text`.
bool matches_glob(std::string_view glob, std::string_view text);

/// Returns the relative paths of all regular files below `root`.
std::vector<std::string> files_below(const std::filesystem::path& root);

}  // namespace danling_command
