// Guard for evaluation and inference without gradients.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

namespace danling::inline v0::detail {

// Inference mode, except for TorchScript: a trained graph saves its inputs for backward even without gradients, and
// inference tensors cannot be saved.
struct WithoutGradients {
  explicit WithoutGradients(bool script) : inference(!script) {}
  c10::InferenceMode inference;
  c10::NoGradGuard no_grad;  // declared after it: with inference mode off, gradients would be on
};

}  // namespace danling::inline v0::detail
