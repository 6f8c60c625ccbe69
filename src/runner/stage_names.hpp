// Stages of a pipeline by module names, as the config lists them, and their number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <danling/parallel/topology.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/process_options.hpp>

namespace danling::inline v0::detail {

/// Number of stages on all ranks. @throws ConfigError for fewer than ranks, or a number that the ranks do not divide
std::int64_t stages_of(const ParallelConfig& config, const ParallelTopology& topology);

/// Splits "a, b.0" into names.
std::vector<std::string> names_in(std::string_view text);

/// Every rank checks the stages of all ranks, so that all throw the same error. A PipelineModel interprets its names
/// itself.
/// @throws ConfigError for a stage without names, unknown and repeated names, a parameter in two stages or in none, and
/// modules of a Sequential that are incomplete or out of order
void check_stage_names(const ModelHandle& whole, const std::vector<std::string>& stages);

}  // namespace danling::inline v0::detail
