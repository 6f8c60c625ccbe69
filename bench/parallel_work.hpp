// The measured process of bench/parallel.cpp.
#pragma once

#include <string>
#include <vector>

namespace bench {

/// Trains the MLP of the benchmark on command, as ddp_work.hpp describes. `arguments`: the folder of the inputs, the
/// batch size, the optimizer, its learning rate, and the kind: plain, units, whole, zero2, zero1 or gloo.
int train_sharded_on_command(const std::vector<std::string>& arguments);

/// Instructions of a step of one process, with a plain loop and with a ShardedModel of one rank; 0 if the machine
/// cannot count them.
struct StepCounts {
  double plain = 0, sharded = 0;
};
StepCounts count_steps(const std::string& folder);

}  // namespace bench
