// The sections of RunnerConfig for several processes.
#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

void CommConfig::fields(Fields& f) {
  f("init_timeout_seconds", init_timeout_seconds,
    "seconds that processes wait for each other until training begins; unset: 300")
      .above(0);
  f("train_timeout_seconds", train_timeout_seconds, "the same after the first update; unset: as before it").above(0);
}

void DdpConfig::fields(Fields& f) {
  f("bucket_cap_mb", bucket_cap_mb, "MiB of gradients that processes sum at once").above(0);
  f("overlap", overlap, "begin to sum gradients while the backward pass runs");
  f("shared_memory", shared_memory, "exchange gradients through shared memory where all processes are on one machine");
  f("comm_hook", comm_hook, "element type in which gradients travel: bf16_compress, fp16_compress, or none: their own")
      .choices({"none", "bf16_compress", "fp16_compress"});
}

}  // namespace danling::inline v0
