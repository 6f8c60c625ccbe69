// StepOutput: the return value of a step.
#pragma once

#include <ATen/core/Tensor.h>

namespace danling::inline v0 {

/// The model's output of type `P` and the scalar loss of one micro-batch. Either may be empty; the loop averages only
/// defined losses.
template <class P>
struct BasicStepOutput {
  P prediction = {};
  at::Tensor loss = {};
};

/// For a model that returns a tensor.
using StepOutput = BasicStepOutput<at::Tensor>;

}  // namespace danling::inline v0
