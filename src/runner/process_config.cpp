// The sections of RunnerConfig for several processes.
#include "runner/process_config.hpp"

#include <bit>

#include <danling/core/error.hpp>

#include "runner/reserved_keys.hpp"

namespace danling::inline v0 {

void CommConfig::fields(Fields& f) {
  f("init_timeout_seconds", init_timeout_seconds,
    "seconds that processes wait for each other until training begins; unset: 300")
      .above(0);
  f("train_timeout_seconds", train_timeout_seconds, "the same after the first update; unset: as before it").above(0);
}

void ParallelConfig::fields(Fields& f) {
  f("virtual_ranks", virtual_ranks,
    "with deterministic: a power of two of shards that a global batch is computed in, each of batch_size samples, so "
    "that any number of processes up to it gives the same bits; unset: each process computes its part as one")
      .above(0);
  detail::reserve(f, detail::reserved_keys().parallel);
}

void DdpConfig::fields(Fields& f) {
  f("bucket_cap_mb", bucket_cap_mb, "MiB of gradients that processes sum at once").above(0);
  f("overlap", overlap, "begin to sum gradients while the backward pass runs");
  f("shared_memory", shared_memory, "exchange gradients through shared memory where all processes are on one machine");
  f("comm_hook", comm_hook, "element type in which gradients travel: bf16_compress, fp16_compress, or none: their own")
      .choices({"none", "bf16_compress", "fp16_compress"});
}

void FtConfig::fields(Fields& f) {
  f("enabled", enabled, "train on with the processes that are left when one dies, and take in others");
  f("process_group", process_group, "how they communicate").choices({"gloo"}).refuse("nccl", "NCCL beside ft");
  f("process_group_timeout_ms", process_group_timeout_ms,
    "milliseconds that a process waits in a collective, and for one that lives and does not come")
      .at_least(1);
  f("replica_id", replica_id, "number of this process from 0, where no launcher gives it a rank").at_least(0);
  f("group_size", group_size, "processes that start together, where no launcher says how many").at_least(1);
  f("min_replica_size", min_replica_size, "processes without which training waits for others").at_least(1);
  f("directory", directory, "where the processes meet, on a file system with locks; unset: .ft in workspace_root");
  f("snapshot_interval", snapshot_interval,
    "updates between two states that each process keeps in memory: as many are redone at most")
      .at_least(1);
}

std::string_view RunnerConfig::stack_name() const {
  return stack == "auto" || stack == "torch" ? std::string_view("ddp") : std::string_view(stack);
}

void detail::check_processes(const RunnerConfig& config) {
  static constexpr std::string_view where = "config.validate";
  if (const auto shards = config.parallel.virtual_ranks) {
    check<ConfigError>(std::has_single_bit(static_cast<std::uint64_t>(*shards)), where,
                       "expected a power of two for 'parallel.virtual_ranks', got ", *shards);
    check<ConfigError>(config.deterministic, where,
                       "expected 'deterministic: true' beside 'parallel.virtual_ranks', got none");
  }
  if (const FtConfig& ft = config.ft; ft.enabled) {
    check<ConfigError>(ft.replica_id < ft.group_size, where, "expected 'ft.replica_id' below 'ft.group_size' (",
                       ft.group_size, "), got ", ft.replica_id);
    check<ConfigError>(ft.group_size == 1 || ft.min_replica_size <= ft.group_size, where,
                       "expected 'ft.min_replica_size' of at most 'ft.group_size' (", ft.group_size, "), got ",
                       ft.min_replica_size);
  }
}

}  // namespace danling::inline v0
