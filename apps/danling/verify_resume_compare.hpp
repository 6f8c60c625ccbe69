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

namespace danling_command {

struct Difference {
  std::string path;  ///< below the workspace root
  std::string text;
};

struct CompareOptions {
  std::vector<std::string> ignored;  ///< globs of paths that are not compared
  /// Saves that failed by an injected error and were not repeated: as many history checkpoints may be missing.
  std::int64_t lost_saves = 0;
  /// History checkpoints that a whole run writes more than once: if the last of these saves failed, an earlier one
  /// remains.
  std::set<std::string> provisional = {};
  /// The run removes old history checkpoints; an injected error may have left one.
  bool removes_history = false;
};

/// Compares all files of two finished runs except logs, attempts/, locks, `previous.pth` (which depends on the
/// interruptions), and, inside files, entries of one attempt: times, rates, process, host. Metrics first, then the
/// checkpoints of the history in their order, then the rest.
std::vector<Difference> compare_runs(const std::filesystem::path& reference, const std::filesystem::path& run,
                                     const CompareOptions& options);

/// Compares the newest checkpoints, `latest.pth`, of two runs with the status "finished".
std::optional<Difference> compare_newest(const std::filesystem::path& reference, const std::filesystem::path& run,
                                         const std::vector<std::string>& ignored);

/// Compares the metrics and history that an interrupted run has written so far.
/// Skips unchanged files that were already compared.
class PartialComparison {
 public:
  /// `provisional`: files that a whole run writes more than once, and which may therefore differ before its end.
  explicit PartialComparison(const std::set<std::string>& provisional) : provisional_(provisional) {}

  std::optional<Difference> check(const std::filesystem::path& reference, const std::filesystem::path& run);

 private:
  const std::set<std::string>& provisional_;
  std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> same_;
};

/// 0: metrics, 1: checkpoints of the history, 2: other checkpoints, 3: the rest.
int group_of(const std::string& path);

/// Whether `*` and letters of `glob` match all of `text`.
bool matches_glob(std::string_view glob, std::string_view text);

/// Every regular file below `root`, by its path there.
std::vector<std::string> files_below(const std::filesystem::path& root);

}  // namespace danling_command
