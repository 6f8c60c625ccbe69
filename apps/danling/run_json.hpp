// Converts the small files of a run to JSON for the page.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/workspace/run_directory.hpp>

namespace danling_command {

/// Returns status, summary, configs, results, checkpoints, code, system and profiles of a run. Adds a line to `notes`
/// for each file that exists but cannot be read, or that a newer version wrote.
nlohmann::ordered_json run_json(const danling::RunDirectory& run, std::vector<std::string>& notes);

}  // namespace danling_command
