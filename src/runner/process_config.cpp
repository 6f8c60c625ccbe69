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
  f("step_timeout_seconds", step_timeout_seconds,
    "seconds after which a process ends with code 70 and the stacks of its threads when no micro-batch, evaluation "
    "batch or save has ended; unset: never")
      .above(0);
  f("debug", debug, "compare the collectives that ranks start, also asynchronous ones: order, shape and dtype");
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
}

}  // namespace danling::inline v0
