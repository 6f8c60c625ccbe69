// `stack: deepspeed`: maps the stages of ZeRO to stacks of this library.
#include <runner/deepspeed_stack.hpp>

#include <memory>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

void detail::apply_zero_stage(RunnerConfig& config, int stage) {
  config.stack = stage == 0 ? "ddp" : "fsdp";
  config.fsdp.stage = stage == 0 ? config.fsdp.stage : stage;
}

void detail::add_deepspeed_stack(StackRegistry& stacks) {
  stacks.add("deepspeed", [](const ProcessIdentity& identity, const RunnerConfig& config) {
    check<ConfigError>(config.zero_stage.has_value(), "runner.stack",
                       "expected a runner that reads 'deepspeed' for 'stack: deepspeed', got another; derive it from "
                       "dl::DeepSpeedRunner");
    RunnerConfig actual = config;
    apply_zero_stage(actual, *config.zero_stage);
    return danling::stacks().at(actual.stack)(identity, actual);
  });
}

void detail::check_deepspeed(const RunnerConfig& config) {
  check<ConfigError>(config.deepspeed.is_null() || config.stack == "deepspeed" || config.stack == "ds",
                     "config.validate", "expected 'stack: deepspeed' with 'deepspeed', got ", config.stack);
}

}  // namespace danling::inline v0
