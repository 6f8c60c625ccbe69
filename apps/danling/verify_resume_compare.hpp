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
  /// Saves that failed by an injected error and were not repeated: as many history checkpoints may be missing.
  std::int64_t lost_saves = 0;
  /// History checkpoints that a whole run writes more than once: if the last of these saves failed, an earlier one
  /// remains.
  std::set<std::string> provisional = {};
  /// The run removes old history checkpoints; an injected error may have left one.
  bool removes_history = false;
  ValueRules rules = {};
};

/// Compares all files of two finished runs except logs, attempts/, locks, `previous` (which depends on the
/// interruptions), and, inside files, entries of one attempt: times, rates, process, host. A checkpoint of shards is
/// compared whole, by its name: names of directories and the division over files do not count. Metrics first, then the
/// checkpoints of the history in their order, then the rest.
std::vector<Difference> compare_runs(const std::filesystem::path& reference, const std::filesystem::path& run,
                                     const RunCompareOptions& options);

/// Compares the newest checkpoints, `latest`, of two runs with the status "finished".
std::optional<Difference> compare_newest(const std::filesystem::path& reference, const std::filesystem::path& run,
                                         const std::vector<std::string>& ignored, const ValueRules& rules);

/// Compares the metrics and history that an interrupted run has written so far.
/// Skips unchanged files that were already compared.
class PartialComparison {
 public:
  /// `provisional`: files that a whole run writes more than once, and which may therefore differ before its end.
  PartialComparison(const std::set<std::string>& provisional, const ValueRules& rules)
      : provisional_(provisional), rules_(rules) {}

  std::optional<Difference> check(const std::filesystem::path& reference, const std::filesystem::path& run);

 private:
  const std::set<std::string>& provisional_;
  const ValueRules& rules_;
  std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> same_;
};

/// 0: metrics, 1: checkpoints of the history, 2: other checkpoints, 3: the rest.
int group_of(const std::string& path);

/// Whether `*` and letters of `glob` match all of `text`.
bool matches_glob(std::string_view glob, std::string_view text);

/// Every regular file below `root`, by its path there.
std::vector<std::string> files_below(const std::filesystem::path& root);

}  // namespace danling_command
