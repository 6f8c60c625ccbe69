// The page of `danling report` and `danling watch`: one HTML document with the runs' files as JSON.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <danling/telemetry/metrics_reader.hpp>
#include <danling/workspace/run_directory.hpp>

namespace danling_command {

/// A run of the page; caches its metrics.
class RunOfPage {
 public:
  explicit RunOfPage(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return run_.dir(); }
  /// Returns true if the directory is that of a run.
  bool exists() const;
  /// Reads new lines of metrics.jsonl; adds a note to the page if the file cannot be read. Keeps the curves of a run
  /// that vanished. Returns true if the curves changed.
  bool update();
  /// Number of complete lines of metrics.jsonl.
  std::uint64_t lines() const { return metrics_.lines(); }
  /// Returns the run's part of the page's data, a JSON object.
  std::string json(const std::string& label) const;

 private:
  danling::RunDirectory run_;
  danling::MetricsReader metrics_;
  std::string metrics_problem_;
};

/// Returns unique names of runs: the lineage, the lineage with the beginning of the id, or the path.
std::vector<std::string> labels_of(const std::vector<RunOfPage>& runs);

/// Returns all runs as the page's data. `version` changes with the data.
std::string page_data(const std::vector<RunOfPage>& runs, std::uint64_t version, bool live);

/// Returns the HTML document with these data, escaped so that they cannot end their element. A random nonce prevents
/// the execution of scripts in names of runs. The page loads nothing, except `data.json` if `live`.
std::string page_html(const std::string& data, bool live);

}  // namespace danling_command
