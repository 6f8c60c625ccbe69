// The sections of RunnerConfig for what a run reports.
#include <danling/runner/logging_options.hpp>

namespace danling::inline v0 {

void PerformanceConfig::fields(Fields& f) {
  f("model_flops_per_sample", model_flops_per_sample,
    "floating-point operations of training with one sample, forward and backward; unset: counted in the first step")
      .above(0);
  f("model_flops_per_token", model_flops_per_token, "the same for one token, where the batch counts tokens").above(0);
  f("hardware_flops_per_sample", hardware_flops_per_sample,
    "the same with the operations that recompute repeats; unset: not reported")
      .above(0);
  f("hardware_flops_per_token", hardware_flops_per_token, "the same for one token").above(0);
  f("peak_flops", peak_flops,
    "operations per second that the devices of all processes can do; unset: no utilization is reported")
      .above(0);
}

}  // namespace danling::inline v0
