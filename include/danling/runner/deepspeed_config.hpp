// DeepSpeed's JSON: its batch sizes, precision, ZeRO stage, optimizer and schedule as settings of a runner.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

/// The error of the reader of a JSON.
struct DeepSpeedNotes {
  std::vector<std::string> info;      ///< keys that only tune DeepSpeed's engine
  std::vector<std::string> warnings;  ///< settings that are not as in DeepSpeed
};

namespace detail {
void fold_deepspeed(RunnerConfig& config, const RunnerConfig& defaults, std::int64_t world_size, DeepSpeedNotes& notes);
}  // namespace detail

/// `config` with `deepspeed`, a mapping or the name of a JSON file, read into its other settings; `stack` becomes
/// deepspeed, and `deepspeed` the effective configuration: that of the file, with the batch size of a process and with
/// one accumulation step, because `accum_steps` of the config counts them (as in DanLing). docs/runner/deepspeed.md has
/// a table of all keys. Reading the result again changes nothing.
///
/// A setting of the program, which equals that of a new `C`, gives way to the JSON; one that was set otherwise and
/// differs is an error. Opens no other file than the JSON. Not collective: all ranks read the same.
/// @param world_size  processes that share the data
/// @param notes  gets lines
/// @throws ConfigError for a key that is unknown or refused, a value that is out of range or contradicts another
template <std::derived_from<RunnerConfig> C>
C with_deepspeed(C config, std::int64_t world_size, DeepSpeedNotes* notes = nullptr) {
  DeepSpeedNotes unheard;
  detail::fold_deepspeed(config, C(), world_size, notes == nullptr ? unheard : *notes);
  return config;
}

}  // namespace danling::inline v0
