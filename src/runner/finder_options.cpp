#include <danling/runner/finder_options.hpp>

namespace danling::inline v0 {

void FindLrOptions::fields(Fields& f) {
  f("min", min, "first learning rate").above(0);
  f("max", max, "last learning rate").above(0);
  f("steps", steps, "updates from the first rate to the last").at_least(2);
  f("smoothing", smoothing, "weight of the earlier losses in the running average").range(0, 0.9999);
  f("divergence", divergence, "end when the smoothed loss exceeds this many times its minimum").above(1);
  f("model", model, "name of the model whose rate grows, if there are several");
  f("svg", svg, "write the plot to this file");
}

void FindLrConfig::fields(Fields& f) {
  f("enabled", enabled, "find a learning rate instead of training; writes no run (--find_lr alone)");
  FindLrOptions::fields(f);
}

void FindBatchSizeOptions::fields(Fields& f) {
  f("min", min, "first batch size").at_least(1);
  f("max", max, "largest batch size to try").at_least(1);
  f("steps", steps, "measured updates per batch size").at_least(1);
  f("memory_limit", memory_limit,
    "memory for model and training step, such as 4GiB; unset: all memory of a device, on the CPU half of the available "
    "memory");
  f("svg", svg, "write the plot to this file");
}

void FindBatchSizeConfig::fields(Fields& f) {
  f("enabled", enabled, "find the largest batch instead of training; writes no run (--find_batch_size alone)");
  FindBatchSizeOptions::fields(f);
}

}  // namespace danling::inline v0
