#include <danling/runner/stacks.hpp>

#include <utility>

#include <danling/runner/runner_config.hpp>

#include "runner/data_parallel.hpp"
#include "runner/process_config.hpp"
#include "runner/sharded_parallel.hpp"
#include "runner/virtual_ranks.hpp"

namespace danling::inline v0 {
namespace {

Group join_processes(const ProcessIdentity& identity, const RunnerConfig& config) {
  GroupOptions options;
  options.debug = config.comm.debug;
  if (const auto seconds = config.comm.init_timeout_seconds) {
    options.timeout = detail::timeout_of(*seconds);
  }
  return Group::connect(identity, options);
}

std::unique_ptr<Parallelism> make_ddp(const ProcessIdentity& identity, const RunnerConfig& config) {
  const auto virtual_ranks = config.parallel.virtual_ranks;
  if (!identity.distributed() && !virtual_ranks) {
    return std::make_unique<Parallelism>(identity);
  }
  const Group group = join_processes(identity, config);
  if (virtual_ranks) {
    return std::make_unique<detail::VirtualRanks>(group, *virtual_ranks, config.ddp, group.timeout());
  }
  return std::make_unique<detail::DataParallel>(group, config.ddp, group.timeout());
}

/// Of all processes together; every axis has one where there is one.
std::unique_ptr<Parallelism> make_grid(const ProcessIdentity& identity, const RunnerConfig& config,
                                       const ParallelAxesConfig& axes) {
  ParallelTopology topology = detail::grid_topology(identity.world_size, identity.rank, axes.list());
  if (!identity.distributed()) {
    return std::make_unique<Parallelism>(identity);
  }
  return std::make_unique<detail::ShardedParallel>(join_processes(identity, config), std::move(topology), config.fsdp);
}

std::unique_ptr<Parallelism> make_fsdp(const ProcessIdentity& identity, const RunnerConfig& config) {
  ParallelAxesConfig axes = config.parallel.axes;
  axes.shard = axes.any() ? axes.shard : identity.world_size;
  return make_grid(identity, config, axes);
}

std::unique_ptr<Parallelism> make_parallel(const ProcessIdentity& identity, const RunnerConfig& config) {
  return make_grid(identity, config, config.parallel.axes);
}

}  // namespace

StackRegistry& stacks() {
  static StackRegistry registry = [] {
    StackRegistry known("stack");
    known.add("ddp", make_ddp);
    known.add("fsdp", make_fsdp);
    known.add("parallel", make_parallel);
    return known;
  }();
  return registry;
}

}  // namespace danling::inline v0
