// `stack: deepspeed`: the stages of ZeRO as stacks of this library.
#pragma once

#include <danling/runner/runner_config.hpp>
#include <danling/runner/stacks.hpp>

namespace danling::inline v0::detail {

/// Sets the stack that keeps on each process what a stage of ZeRO keeps there: 0 whole parameters, gradients and
/// optimizer states; 1 a part of the states; 2 of the gradients too; 3 of the parameters too.
void apply_zero_stage(RunnerConfig& config, int stage);

/// Adds `deepspeed`, which joins the processes of a config that a DeepSpeedRunner has read.
void add_deepspeed_stack(StackRegistry& stacks);

/// @throws ConfigError for `deepspeed` beside another stack
void check_deepspeed(const RunnerConfig& config);

}  // namespace danling::inline v0::detail
