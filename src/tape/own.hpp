// Kernels of ours that are compared with LibTorch's on this machine before use.
#pragma once

#include <ATen/core/Tensor.h>

#include <tape/direct.hpp>

namespace danling::inline v0::tape::own {

inline float* floats(const at::Tensor& tensor) {
  return static_cast<float*>(tensor.unsafeGetTensorImpl()->mutable_data());
}

/// In own_random.cpp: draws the same numbers as `bernoulli_(p)` from the same generator.
Kernel bernoulli(const BoundCall& call);

/// In own_softmax.cpp: over the last dimension, for few classes.
Kernel log_softmax(const BoundCall& call);
Kernel log_softmax_backward(const BoundCall& call);

}  // namespace danling::inline v0::tape::own
