// The small files of a run as JSON values for the page.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/workspace/run_directory.hpp>

namespace danling_command {

/// Status, summary, configs, results, checkpoints, code, system and profiles of a run. `notes` gets one line for each
/// file that is there and cannot be read, or was written by a newer version.
nlohmann::ordered_json run_json(const danling::RunDirectory& run, std::vector<std::string>& notes);

}  // namespace danling_command
