// Evaluation and inference compute without gradients.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

namespace danling::inline v0::detail {

// Inference mode, but not for TorchScript: a graph that has been trained saves its inputs for a backward pass even
// where there will be none, and tensors of that mode cannot be saved.
struct WithoutGradients {
  explicit WithoutGradients(bool script) : inference(!script) {}
  c10::InferenceMode inference;
  c10::NoGradGuard no_grad;  // after it: where that mode is off, gradients are on
};

}  // namespace danling::inline v0::detail
