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

void PowerSGDConfig::fields(Fields& f) {
  f("rank", rank, "columns of the factors that stand for a matrix of gradients").at_least(1);
  f("start_iter", start_iter, "updates before the first compressed one").at_least(0);
  f("min_compression_rate", min_compression_rate,
    "compresses a matrix only if that shrinks it by more than this factor")
      .above(0);
  f("use_error_feedback", use_error_feedback, "adds what an update has lost to the next one");
  f("warm_start", warm_start, "begins with the factors of the update before, else with random ones");
  f("orthogonalization_epsilon", orthogonalization_epsilon, "added to the norms by which columns are divided")
      .at_least(0);
}

void DdpConfig::fields(Fields& f) {
  f("bucket_cap_mb", bucket_cap_mb, "MiB of gradients that processes sum at once").above(0);
  f("overlap", overlap, "begin to sum gradients while the backward pass runs");
  f("shared_memory", shared_memory, "exchange gradients through shared memory where all processes are on one machine");
  f("broadcast_buffers", broadcast_buffers,
    "after each update, all processes get the buffers (running statistics) of the first one that has batches");
  f("comm_hook", comm_hook,
    "how gradients travel: bf16_compress or fp16_compress: in that element type; powerSGD: as low-rank approximations; "
    "none: as they are")
      .choices({"none", "bf16_compress", "fp16_compress", "powerSGD"});
  f("powersgd", powersgd, "approximation of gradients with comm_hook: powerSGD");
}

std::string_view RunnerConfig::stack_name() const {
  return stack == "auto" || stack == "torch" ? std::string_view("ddp") : std::string_view(stack);
}

void detail::check_processes(const RunnerConfig& config) {
  static constexpr std::string_view where = "config.validate";
  const bool approximates = config.ddp.comm_hook == "powerSGD";
  check<ConfigError>(approximates || static_cast<const PowerSGDOptions&>(config.ddp.powersgd) == PowerSGDOptions(),
                     where, "expected 'ddp.comm_hook: powerSGD' beside 'ddp.powersgd', got ", config.ddp.comm_hook);
  if (const auto shards = config.parallel.virtual_ranks) {
    check<ConfigError>(!approximates, where,
                       "expected exact gradients with 'parallel.virtual_ranks', got 'ddp.comm_hook: powerSGD', whose "
                       "sums depend on the number of processes; unset one of the two");
    check<ConfigError>(std::has_single_bit(static_cast<std::uint64_t>(*shards)), where,
                       "expected a power of two for 'parallel.virtual_ranks', got ", *shards);
    check<ConfigError>(config.deterministic, where,
                       "expected 'deterministic: true' beside 'parallel.virtual_ranks', got none");
  }
}

}  // namespace danling::inline v0
