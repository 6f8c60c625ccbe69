// Stages of a pipeline by names of modules, as the config lists them, and their number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <danling/parallel/topology.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/process_options.hpp>

namespace danling::inline v0::detail {

/// Of all ranks. @throws ConfigError for fewer than ranks, and a number that these do not divide
std::int64_t stages_of(const ParallelConfig& config, const ParallelTopology& topology);

/// "a, b.0" as names.
std::vector<std::string> names_in(std::string_view text);

/// Every rank checks the stages of all, so that all throw the same error. A PipelineModel takes its names as it likes.
/// @throws ConfigError for a stage without names, unknown and repeated names, a parameter in two stages, one in none,
/// and modules of a Sequential that are not all there in its order
void check_stage_names(const ModelHandle& whole, const std::vector<std::string>& stages);

}  // namespace danling::inline v0::detail
