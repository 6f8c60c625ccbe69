// Builds runners and configs from checkpoints.
#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <utility>

#include <danling/checkpoint/pretrained.hpp>
#include <danling/runner/base_runner.hpp>

namespace danling::inline v0 {

namespace detail {
State read_run(const std::filesystem::path& path);
void read_config(RunnerConfig& config, const State& checkpoint, const std::filesystem::path& path = {});
void start_afresh(RunnerConfig& config);
}  // namespace detail

/// Reads the config of a run from its checkpoint; missing keys keep their defaults. Unsets `resume`, `auto_resume` and
/// `pretrained`, which are not part of a run.
/// @throws CheckpointError for a file without a config, ConfigError for a config of another type
template <std::derived_from<RunnerConfig> C>
C read_config(const std::filesystem::path& checkpoint) {
  C config;
  detail::read_config(config, detail::read_run(checkpoint), checkpoint);
  return config;
}
template <std::derived_from<RunnerConfig> C, std::same_as<State> S>  // text converts to State
C read_config(const S& checkpoint) {
  C config;
  detail::read_config(config, checkpoint);
  return config;
}

/// Builds a runner with the config of a checkpoint and restores it: `from_checkpoint<MyRunner, MyConfig>(path)`.
/// Training continues in the directory of that config. To load another layout, convert it to a State first.
/// @throws as read_config and BaseRunner::load_checkpoint
template <std::derived_from<BaseRunner> R, std::derived_from<RunnerConfig> C, std::same_as<State> S>
std::unique_ptr<R> from_checkpoint(const S& checkpoint) {
  auto runner = std::make_unique<R>(read_config<C>(checkpoint));
  runner->load_checkpoint(checkpoint);
  return runner;
}
template <std::derived_from<BaseRunner> R, std::derived_from<RunnerConfig> C>
std::unique_ptr<R> from_checkpoint(const std::filesystem::path& checkpoint) {
  auto runner = std::make_unique<R>(read_config<C>(checkpoint));
  runner->load_checkpoint(checkpoint);  // by its path, so that training continues in this directory
  return runner;
}

/// Builds a runner with `config` and the weights of a checkpoint (a path or a State):
/// `from_pretrained<MyRunner>(config, path)`. Ignores `resume`, `auto_resume` and `pretrained` of the config.
/// @throws as BaseRunner::load_pretrained
template <std::derived_from<BaseRunner> R, std::derived_from<RunnerConfig> C, class Checkpoint>
std::unique_ptr<R> from_pretrained(C config, const Checkpoint& checkpoint, const PretrainedOptions& options = {}) {
  detail::start_afresh(config);
  auto runner = std::make_unique<R>(config);
  runner->load_pretrained(checkpoint, options);
  return runner;
}

}  // namespace danling::inline v0
