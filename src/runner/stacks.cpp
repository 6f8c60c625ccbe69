#include <danling/runner/stacks.hpp>

#include <string_view>

namespace danling::inline v0 {
namespace {

std::string_view size_variable(const ProcessIdentity& identity) {
  return identity.launcher == "openmpi" ? "OMPI_COMM_WORLD_SIZE"
         : identity.launcher == "slurm" ? "SLURM_STEP_NUM_TASKS"
         : identity.launcher == "mpich" ? "PMI_SIZE"
                                        : "WORLD_SIZE";
}

std::unique_ptr<Parallelism> make_ddp(const ProcessIdentity& identity, const RunnerConfig& /*config*/) {
  const std::string_view variable = size_variable(identity);
  check<DistributedError>(identity.world_size == 1, "runner.init_distributed", "expected one process, got ", variable,
                          "=", identity.world_size, "; this release trains in one process: start one, or set ",
                          variable, "=1");
  return std::make_unique<Parallelism>(identity);
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
