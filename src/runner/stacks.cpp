#include <danling/runner/stacks.hpp>

#include <chrono>

#include <danling/runner/runner_config.hpp>

#include "runner/data_parallel.hpp"

namespace danling::inline v0 {
namespace {

std::unique_ptr<Parallelism> make_ddp(const ProcessIdentity& identity, const RunnerConfig& config) {
  if (!identity.distributed()) {
    return std::make_unique<Parallelism>(identity);
  }
  GroupOptions options;
  if (const auto seconds = config.comm.init_timeout_seconds) {
    options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
  }
  return std::make_unique<detail::DataParallel>(Group::connect(identity, options), config.ddp, options.timeout);
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
