// What one step hands back to the loop.
#pragma once

#include <ATen/core/Tensor.h>

namespace danling::inline v0 {

/// The model's output and the scalar loss of one micro-batch. Either may be undefined: no prediction worth keeping, no
/// loss (the loop then skips its bookkeeping).
struct StepOutput {
  at::Tensor prediction;
  at::Tensor loss;
};

}  // namespace danling::inline v0
