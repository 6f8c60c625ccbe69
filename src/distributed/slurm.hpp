// Parsers of the node lists and numbers in Slurm's environment variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace danling::inline v0::detail {

/// Returns the first host of a list such as `node[01-03,7],gpu3`; nullopt if the text is not such a list.
std::optional<std::string> first_slurm_host(std::string_view list);

/// Returns the number of tasks on node `node` of a list such as `2(x3),1`; nullopt if the text is not such a list or
/// too short.
std::optional<int> slurm_tasks_on_node(std::string_view list, int node);

/// Returns the port for the ranks of a step, 15000 or above. Step 0 has 15000 + the last four digits of the job id.
int slurm_port(std::uint64_t job, std::uint64_t step);

}  // namespace danling::inline v0::detail
