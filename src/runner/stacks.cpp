#include <danling/runner/stacks.hpp>

#include <danling/runner/parallel_parts.hpp>
#include <danling/runner/runner_config.hpp>

#include <runner/data_parallel.hpp>
#include <runner/join_processes.hpp>
#include <runner/process_config.hpp>
#include <runner/virtual_ranks.hpp>

namespace danling::inline v0 {
Group detail::join_processes(const ProcessIdentity& identity, const RunnerConfig& config) {
  GroupOptions options;
  options.debug = config.comm.debug;
  if (const auto seconds = config.comm.init_timeout_seconds) {
    options.timeout = detail::timeout_of(*seconds);
  }
  return Group::connect(identity, options);
}

namespace {

using detail::join_processes;

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

std::unique_ptr<Parallelism> make_grid(const ProcessIdentity& identity, const RunnerConfig& config) {
  return detail::build_grid(identity, config, detail::topology_of(config, identity.world_size, identity.rank));
}

}  // namespace

StackRegistry& stacks() {
  static StackRegistry registry = [] {
    StackRegistry known("stack");
    known.add("ddp", make_ddp);
    known.add("fsdp", make_grid);
    known.add("parallel", make_grid);
    return known;
  }();
  return registry;
}

}  // namespace danling::inline v0
