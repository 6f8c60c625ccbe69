// Runners and configs made from the files of earlier runs.
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

/// The config that a checkpoint of a run holds, in the type that the run had; keys that the checkpoint does not have
/// keep their defaults. `resume`, `auto_resume` and `pretrained` are unset: they are no part of a run.
/// @throws CheckpointError for a file without a config, ConfigError for one of another type.
template <std::derived_from<RunnerConfig> C>
C read_config(const std::filesystem::path& checkpoint) {
  C config;
  detail::read_config(config, detail::read_run(checkpoint), checkpoint);
  return config;
}
template <std::derived_from<RunnerConfig> C, std::same_as<State> S>  // a State is made from text too
C read_config(const S& checkpoint) {
  C config;
  detail::read_config(config, checkpoint);
  return config;
}

/// A runner with the config that a checkpoint holds, restored from it: `from_checkpoint<MyRunner, MyConfig>(path)`. It
/// trains on in the directory that the config names. A layout of the user's own is read to a State first.
/// @throws as read_config and BaseRunner::load_checkpoint
template <std::derived_from<BaseRunner> R, std::derived_from<RunnerConfig> C, std::same_as<State> S>
std::unique_ptr<R> from_checkpoint(const S& checkpoint) {
  auto runner = std::make_unique<R>(read_config<C>(checkpoint));
  runner->load_checkpoint(checkpoint);
  return runner;
}
template <std::derived_from<BaseRunner> R, std::derived_from<RunnerConfig> C>
std::unique_ptr<R> from_checkpoint(const std::filesystem::path& checkpoint) {
  const State state = detail::read_run(checkpoint);
  C config;
  detail::read_config(config, state, checkpoint);
  auto runner = std::make_unique<R>(config);
  runner->load_checkpoint(state);
  return runner;
}

/// A runner with a config of its own and the weights of a checkpoint (a path, or a State):
/// `from_pretrained<MyRunner>(config, path)`. `resume`, `auto_resume` and `pretrained` of the config do not count.
/// @throws as BaseRunner::load_pretrained
template <std::derived_from<BaseRunner> R, std::derived_from<RunnerConfig> C, class Checkpoint>
std::unique_ptr<R> from_pretrained(C config, const Checkpoint& checkpoint, const PretrainedOptions& options = {}) {
  detail::start_afresh(config);
  auto runner = std::make_unique<R>(config);
  runner->load_pretrained(checkpoint, options);
  return runner;
}

}  // namespace danling::inline v0
