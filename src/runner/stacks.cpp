#include <danling/runner/stacks.hpp>

#include <danling/runner/runner_config.hpp>

#include "runner/data_parallel.hpp"
#include "runner/process_config.hpp"
#include "runner/virtual_ranks.hpp"

namespace danling::inline v0 {
namespace {

std::unique_ptr<Parallelism> make_ddp(const ProcessIdentity& identity, const RunnerConfig& config) {
  const auto virtual_ranks = config.parallel.virtual_ranks;
  if (!identity.distributed() && !virtual_ranks) {
    return std::make_unique<Parallelism>(identity);
  }
  GroupOptions options;
  options.debug = config.comm.debug;
  if (const auto seconds = config.comm.init_timeout_seconds) {
    options.timeout = detail::timeout_of(*seconds);
  }
  Group group = Group::connect(identity, options);
  if (virtual_ranks) {
    return std::make_unique<detail::VirtualRanks>(std::move(group), *virtual_ranks, config.ddp, options.timeout);
  }
  return std::make_unique<detail::DataParallel>(std::move(group), config.ddp, options.timeout);
}

}  // namespace

StackRegistry& stacks() {
  static StackRegistry registry = [] {
    StackRegistry known("stack");
    known.add("ddp", make_ddp);
    return known;
  }();
  return registry;
}

}  // namespace danling::inline v0
