// The measured process of bench/parallel.cpp.
#pragma once

#include <string>
#include <vector>

namespace bench {

/// Trains the MLP of the benchmark on command, as ddp_work.hpp says. `arguments`: the folder of the inputs, the batch
/// size, the optimizer, its rate, and how: plain, units, whole, zero2, zero1 or gloo.
int train_sharded_on_command(const std::vector<std::string>& arguments);

/// Instructions of a step of one process, by a plain loop and by a ShardedModel of one rank; 0 where the machine does
/// not count them.
struct StepCounts {
  double plain = 0, sharded = 0;
};
StepCounts count_steps(const std::string& folder);

}  // namespace bench
