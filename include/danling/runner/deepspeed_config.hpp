// Converts DeepSpeed's JSON (batch sizes, precision, ZeRO stage, optimizer, schedule) to settings of a runner.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

/// Log lines from reading the JSON.
struct DeepSpeedNotes {
  std::vector<std::string> info;      ///< keys that have no effect on results
  std::vector<std::string> warnings;  ///< settings that differ from DeepSpeed's
};

namespace detail {
void fold_deepspeed(RunnerConfig& config, const RunnerConfig& defaults, std::int64_t world_size, DeepSpeedNotes& notes);
}  // namespace detail

/// Applies `deepspeed` of `config`, a mapping or the path of a JSON file, to the other settings. In the result, `stack`
/// is deepspeed, and `deepspeed` is the effective configuration: that of the file with the batch size of a process and
/// one accumulation step, because `accum_steps` of the config counts them (as in DanLing). docs/runner/deepspeed.md
/// lists all keys. Applying it to the result changes nothing.
///
/// The JSON replaces settings that equal those of a default `C`; any other setting that differs from the JSON is an
/// error. Opens no file but the JSON. Not collective: all ranks read the same file.
/// @param world_size  processes that share the data
/// @param notes  receives lines for the log
/// @throws ConfigError for a key that is unknown or refused, or a value that is out of range or contradicts another
template <std::derived_from<RunnerConfig> C>
C with_deepspeed(C config, std::int64_t world_size, DeepSpeedNotes* notes = nullptr) {
  DeepSpeedNotes discarded;
  detail::fold_deepspeed(config, C(), world_size, notes == nullptr ? discarded : *notes);
  return config;
}

}  // namespace danling::inline v0
