// Return value of a step: prediction and loss.
#pragma once

#include <ATen/core/Tensor.h>

namespace danling::inline v0 {

/// The model's output, of a type `P`, and the scalar loss of one micro-batch. Either may be left empty: no prediction
/// worth keeping, no loss (the loop then skips its bookkeeping).
template <class P>
struct BasicStepOutput {
  P prediction = {};
  at::Tensor loss = {};
};

/// For a model that returns a tensor.
using StepOutput = BasicStepOutput<at::Tensor>;

}  // namespace danling::inline v0
