// The start of a fault-tolerant run: joins the processes that start together, or finds that others already train.
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include <torch/version.h>

#include <danling/runner/parallelism.hpp>
#include <danling/runner/stacks.hpp>
#include <danling/version.hpp>

#include <runner/fault_state.hpp>
#include <runner/process_config.hpp>
#include <runner/setup.hpp>
#include <runner/wait_notice.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* join_where = "runner.init_fault_tolerance";

}  // namespace

std::unique_ptr<Parallelism> BaseRunner::Internals::Setup::join_members() {
  const RunnerConfig& config = runner_.config();
  const FtConfig& ft = config.ft;
  const ProcessIdentity own = runner_.parallelism().identity();
  const bool launched = own.distributed();
  check<ConfigError>(!launched || ft.group_size == 1 || ft.group_size == own.world_size, join_where,
                     "expected ft.group_size: ", own.world_size, ", as the launcher started, got ", ft.group_size,
                     "; leave it out");
  detail::MembersOptions options;
  const std::filesystem::path root = config.workspace_root;
  options.directory = (ft.directory ? std::filesystem::path(*ft.directory) : root / detail::default_parent) /
                      concat(runner_.name(), "-", runner_.config_id());
  if (launched && process_environment()("TORCHELASTIC_RUN_ID")) {
    runner_.logger_->warning(
        "runner.init_fault_tolerance: expected processes without a launcher, got those of danling launch or torchrun, "
        "which end all processes when one dies; start each with --ft.replica_id, or leave out ft.enabled");
  }
  options.number = launched ? own.rank : ft.replica_id;
  options.size = launched ? own.world_size : ft.group_size;
  options.least = ft.min_replica_size;
  options.most = config.parallel.virtual_ranks.value_or(std::numeric_limits<std::int64_t>::max());
  check<ConfigError>(options.least <= options.size && options.size <= options.most, join_where,
                     "expected at least ft.min_replica_size: ", options.least,
                     config.parallel.virtual_ranks ? concat(" and at most parallel.virtual_ranks: ", options.most) : "",
                     " processes, got ", options.size);
  options.program = concat("danling ", version, " with LibTorch ", TORCH_VERSION, ", code ", runner_.code_id(),
                           " of file ", program_id(), ", config ", common_config_id());
  options.timestamp = runner_.timestamp();
  options.start_limit = detail::timeout_of(config.comm.init_timeout_seconds.value_or(300.0));
  options.absence_limit = detail::timeout_of(static_cast<double>(ft.process_group_timeout_ms) / 1000);
  std::string waits = concat("waits for the other processes of ", options.size, ", which meet in ",
                             options.directory.string(), ", for at most ", format_seconds(options.start_limit));
  runner_.fault_ = std::make_shared<detail::FaultState>(std::move(options));
  detail::FaultState& state = *runner_.fault_;
  if (state.members.is_late()) {
    state.joins = true;
    runner_.timestamp_ = state.members.timestamp();
    ProcessIdentity outside = own;
    outside.rank = 1;  // not the rank that writes
    outside.world_size = 2;
    return std::make_unique<Parallelism>(outside);
  }
  const detail::WaitNotice notice(*runner_.logger_, std::move(waits));
  for (;;) {
    const detail::Generation generation = state.members.next();
    try {
      return stacks().at(config.stack_name())(detail::identity_in(generation, own), config);
    } catch (const DistributedError& error) {  // a process has died since they joined: the remaining ones join again
      if (generation.same_members) {
        throw;
      }
      runner_.logger_->warning(
          concat("fault tolerance: the group has failed (", error.what(), "); its processes form a new one"));
    }
  }
}

}  // namespace danling::inline v0
