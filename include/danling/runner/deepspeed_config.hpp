// DeepSpeed's JSON: its batch sizes, precision, ZeRO stage, optimizer and schedule as settings of a runner.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

/// Lines for the log about a JSON that was read.
struct DeepSpeedNotes {
  std::vector<std::string> info;      ///< keys that have no effect on results
  std::vector<std::string> warnings;  ///< settings that differ from DeepSpeed's
};

namespace detail {
void fold_deepspeed(RunnerConfig& config, const RunnerConfig& defaults, std::int64_t world_size, DeepSpeedNotes& notes);
}  // namespace detail

/// Reads `deepspeed` of `config`, a mapping or the name of a JSON file, into its other settings. In the result `stack`
/// is deepspeed, and `deepspeed` is the effective configuration: that of the file, with the batch size of a process and
/// one accumulation step, because `accum_steps` of the config counts them (as in DanLing). docs/runner/deepspeed.md has
/// a table of all keys. Reading the result again changes nothing.
///
/// The JSON replaces settings that equal those of a new `C`; any other that differs from the JSON is an error. Opens no
/// other file than the JSON. Not collective: all ranks read the same.
/// @param world_size  processes that share the data
/// @param notes  receives lines for the log
/// @throws ConfigError for a key that is unknown or refused, a value that is out of range or contradicts another
template <std::derived_from<RunnerConfig> C>
C with_deepspeed(C config, std::int64_t world_size, DeepSpeedNotes* notes = nullptr) {
  DeepSpeedNotes unheard;
  detail::fold_deepspeed(config, C(), world_size, notes == nullptr ? unheard : *notes);
  return config;
}

}  // namespace danling::inline v0
