// The lists and numbers that Slurm puts into the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace danling::inline v0::detail {

/// First host of a list such as `node[01-03,7],gpu3`; nothing if the text is no such list.
std::optional<std::string> first_slurm_host(std::string_view list);

/// Number of tasks on node `node` of a list such as `2(x3),1`; nothing if the text is no such list or too short.
std::optional<int> slurm_tasks_on_node(std::string_view list, int node);

/// Port at which the ranks of a step meet, from 15000 on. Step 0 has 15000 + the last four digits of the job's id.
int slurm_port(std::uint64_t job, std::uint64_t step);

}  // namespace danling::inline v0::detail
