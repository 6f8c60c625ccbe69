// The page of `danling report` and `danling watch`: a run's files as JSON, in one HTML document.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <danling/telemetry/metrics_reader.hpp>
#include <danling/workspace/run_directory.hpp>

namespace danling_command {

/// A run that the page draws; keeps what was read of its metrics.
class RunOfPage {
 public:
  explicit RunOfPage(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return run_.dir(); }
  /// Whether the directory is that of a run.
  bool exists() const;
  /// Reads what was appended to metrics.jsonl; a file that cannot be read becomes a note of the page. The curves of a
  /// run that vanished remain.
  /// Returns whether its curves changed.
  bool update();
  /// Complete lines of metrics.jsonl.
  std::uint64_t lines() const { return metrics_.lines(); }
  /// The run's part of the page's data: a JSON object.
  std::string json(const std::string& label) const;

 private:
  danling::RunDirectory run_;
  danling::MetricsReader metrics_;
  std::string metrics_problem_;
};

/// Names of runs, each different: the lineage if that is enough, with the beginning of the id, or the path.
std::vector<std::string> labels_of(const std::vector<RunOfPage>& runs);

/// All runs as the page's data. `version` changes when the data change.
std::string page_data(const std::vector<RunOfPage>& runs, std::uint64_t version, bool live);

/// The HTML document with these data, as a text without tags that end it. Random numbers in it keep scripts that
/// someone hides in a run's names from being executed. It loads nothing, except `data.json` if `live`.
std::string page_html(const std::string& data, bool live);

}  // namespace danling_command
