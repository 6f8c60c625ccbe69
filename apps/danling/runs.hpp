// The commands of `danling runs`, each in a file of the same name, and the facts about runs that they share.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/workspace/run_directory.hpp>

#include "arguments.hpp"

namespace danling_command {

int runs_ls(std::span<const std::string> words);
int runs_show(std::span<const std::string> words);
int runs_compare(std::span<const std::string> words);
int runs_best(std::span<const std::string> words);
int runs_rm(std::span<const std::string> words);

/// The direction of a score by its name: losses are lower, accuracies and the like higher when better; empty for
/// others. @param path  such as `val.acc`
std::optional<bool> usual_direction(std::string_view path);

/// The default directory of runs.
inline constexpr std::string_view runs_root = "experiments";

/// The facts about a run, for one line of a list.
struct RunFacts {
  danling::RunDirectory run{{}};
  std::string name;
  std::string status;
  std::string config_text;  ///< empty if the file is missing
  danling::ReadResult<danling::StoredSummary> summary;
  danling::LockInfo lock;
  danling::ReadResult<danling::NumberedResult> best;
  danling::ReadResult<danling::NumberedResult> latest;
  std::optional<danling::ScoreRule> rule;
  std::optional<double> best_score;
  std::optional<double> latest_score;
  bool by_steps = false;
  std::int64_t done = 0;              ///< epochs (including the epoch in progress) or steps
  std::optional<std::int64_t> total;  ///< by the config
  std::string started;                ///< the timestamp of the latest attempt
  std::optional<double> seconds;      ///< duration so far, or of the ended attempt
  std::uint64_t bytes = 0;

  /// Returns a text such as `epoch 3/20` or `step 1,200/5,000`.
  std::string progress() const;
};

/// Reads the facts of one run; omits facts that cannot be read.
RunFacts read_run(const std::filesystem::path& dir);

/// Reads the facts of all runs below `root` on several threads, since most of the time is spent waiting for the disk.
/// @throws danling::Error if `root` is not a directory, danling::ConfigError if there are no runs below it
std::vector<RunFacts> read_runs(const std::filesystem::path& root);

/// Returns the shortest names by which `find_run` finds the runs: beginnings of the config id, with the folder if
/// needed.
std::vector<std::string> short_names(const std::vector<std::filesystem::path>& dirs);

/// Finds the directory of a run. `word` is a path; or, below `root`, the beginning of a run id, config id or
/// `folder/id`, or the name of a folder with one run. @throws danling::ConfigError with suggestions if none or several
/// match
std::filesystem::path find_run(const std::string& word, const std::filesystem::path& root);

/// The `key=value` filters of --filter. A key is status, name, lineage, id or a key of the config, whose value is
/// compared as YAML.
class RunFilter {
 public:
  /// @throws danling::ConfigError
  RunFilter(std::string_view command, const std::vector<std::string>& words);
  bool accepts(const RunFacts& facts) const;

 private:
  std::vector<std::pair<std::string, std::string>> wanted_;
};

/// Returns the value of a key of --filter and --sort as text; empty if the run has none.
std::string run_value(const RunFacts& facts, const std::string& key);

/// Returns `25 Nov 22:22`, with the year if it is not the current one; returns an invalid timestamp unchanged.
std::string started_text(const std::string& timestamp);
/// Returns the score with four decimals, or `-`.
std::string score_text(const std::optional<double>& score);
/// Colours text by ANSI codes (31 red, 32 green, 33 yellow, 36 cyan, 1 bold) if has_color().
std::string in_color(std::string_view text, int color);
/// Returns the coloured status.
std::string status_text(const std::string& status);
/// Returns true if standard output is a terminal that supports colours.
bool has_color();

}  // namespace danling_command
