// Registry of stacks: the kinds of parallelism that `stack` of a config names.
#pragma once

#include <memory>

#include <danling/core/registry.hpp>
#include <danling/runner/parallelism.hpp>

namespace danling::inline v0 {

struct RunnerConfig;

/// Joins the processes of a launcher and returns the object for their communication.
using StackRegistry = Registry<std::unique_ptr<Parallelism>(const ProcessIdentity&, const RunnerConfig&)>;

/// The factories by `stack`: the library's, and those that a program adds before it reads its config. Called in
/// init_distributed, once on every rank; with `ft` again for each generation of processes.
StackRegistry& stacks();

}  // namespace danling::inline v0
