// The result of a micro-batch in a loop of the program.
#pragma once

#include <ATen/core/Tensor.h>

namespace danling::inline v0 {

/// Result of one micro-batch of the program.
struct BatchReport {
  at::Tensor loss;       ///< on its device; undefined where the step returns none
  bool updated = false;  ///< the optimizer changed the parameters
  bool done = false;     ///< training is over: `steps` of the config, or a callback
};

}  // namespace danling::inline v0
