// Kernels that a tape calls without the dispatcher.
#pragma once

#include <functional>

#include <tape/recording.hpp>

namespace danling::inline v0::tape {

/// A call with the tape's tensors for its arguments and results. Their memory is set later, and may move.
struct BoundCall {
  const Call& call;
  const Tensors& tensors;  ///< by value of the recording

  const at::Tensor& argument(std::size_t i) const {
    static const at::Tensor none;
    const int value = call.arguments[i].values.empty() ? -1 : call.arguments[i].values.front();
    return value < 0 ? none : at_index(tensors, value);
  }
  const c10::IValue& number(std::size_t i) const { return call.arguments[i].constant; }
  at::Tensor result(std::size_t i = 0) const { return at_index(tensors, call.results[i].values.front()); }
};

using Kernel = std::function<void()>;

/// LibTorch's kernel of the call for the CPU, with results in place. Empty where there is none.
Kernel direct_kernel(const BoundCall& call);

/// A kernel of ours with the same bits: found equal to LibTorch's on this machine where that depends on it. Empty where
/// there is none, or none for these shapes.
Kernel own_kernel(const BoundCall& call);

}  // namespace danling::inline v0::tape
