// `stack: deepspeed`: maps the stages of ZeRO to stacks of this library.
#pragma once

#include <danling/runner/runner_config.hpp>
#include <danling/runner/stacks.hpp>

namespace danling::inline v0::detail {

/// Sets the stack that shards what the stage of ZeRO shards: 0 nothing; 1 optimizer states; 2 also gradients; 3 also
/// parameters.
void apply_zero_stage(RunnerConfig& config, int stage);

/// Adds `deepspeed`, which joins the processes of a config that a DeepSpeedRunner has read.
void add_deepspeed_stack(StackRegistry& stacks);

/// @throws ConfigError for `deepspeed` together with another stack
void check_deepspeed(const RunnerConfig& config);

}  // namespace danling::inline v0::detail
