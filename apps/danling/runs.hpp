// The commands of `danling runs`, each in a file of its name, and what they know of a run.
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

/// Where runs are looked for without another word.
inline constexpr std::string_view kRunsRoot = "experiments";

/// The facts about a run in one line of a list.
struct RunFacts {
  danling::RunDirectory run{{}};
  std::string name;
  std::string status;
  std::string config_text;  ///< empty without the file
  danling::Fact<danling::StoredSummary> summary;
  danling::LockFacts lock;
  danling::Fact<danling::NumberedResult> best;
  danling::Fact<danling::NumberedResult> latest;
  std::optional<danling::ScoreRule> rule;
  std::optional<double> best_score;
  std::optional<double> latest_score;
  bool by_steps = false;
  std::int64_t done = 0;              ///< epochs or steps; of a running epoch, with it
  std::optional<std::int64_t> total;  ///< as the config says
  std::string started;                ///< the timestamp of the last attempt
  std::optional<double> seconds;      ///< that it took, or has taken
  std::uint64_t bytes = 0;

  /// `epoch 3/20` or `step 1,200/5,000`.
  std::string progress() const;
};

/// Reads one run's facts; what cannot be read is left out.
RunFacts read_run(const std::filesystem::path& dir);

/// The facts of all runs below `root`, read by several threads: most of the time the disk is waited for.
/// @throws danling::Error when `root` is no directory; danling::ConfigError when there are no runs below it
std::vector<RunFacts> read_runs(const std::filesystem::path& root);

/// The shortest names by which `find_run` finds each of the runs: beginnings of the config's id, with the folder where
/// that is needed.
std::vector<std::string> short_names(const std::vector<std::filesystem::path>& dirs);

/// The directory of a run: a path, or the beginning of a run's id, of its config's id or of `folder/id` below `root`;
/// or the name of a folder with one run. @throws danling::ConfigError with suggestions when none or several fit
std::filesystem::path find_run(const std::string& word, const std::filesystem::path& root);

/// `key=value` of --filter: status, name, lineage or id, or a key of the config, whose value is compared as YAML.
class RunFilter {
 public:
  /// @throws danling::ConfigError
  RunFilter(std::string_view command, const std::vector<std::string>& words);
  bool accepts(const RunFacts& facts) const;

 private:
  std::vector<std::pair<std::string, std::string>> wanted_;
};

/// The value of a key that --filter and --sort know, as text; empty where the run has none.
std::string run_value(const RunFacts& facts, const std::string& key);

/// `25 Nov 22:22`, or with the year when it is another; the timestamp itself when it is none.
std::string started_text(const std::string& timestamp);
/// Four decimals, or `-`.
std::string score_text(const std::optional<double>& score);
/// Text in a colour of ANSI terminals (31 red, 32 green, 33 yellow, 36 cyan, 1 bold) when standard output is a terminal
/// that shows it.
std::string in_color(std::string_view text, int color);
/// The status in its colour.
std::string status_text(const std::string& status);
/// Whether a line of standard output may have colours.
bool has_color();

}  // namespace danling_command
