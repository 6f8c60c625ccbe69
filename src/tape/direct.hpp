// Kernels that a tape calls without the dispatcher.
#pragma once

#include <functional>

#include <tape/recording.hpp>

namespace danling::inline v0::tape {

/// A call bound to the tape's tensors as arguments and results. Their memory is assigned later and may move.
struct BoundCall {
  const Call& call;
  const Tensors& tensors;  ///< per value of the recording

  const at::Tensor& argument(std::size_t i) const {
    static const at::Tensor none;
    const int value = call.arguments[i].values.empty() ? -1 : call.arguments[i].values.front();
    return value < 0 ? none : at_index(tensors, value);
  }
  const c10::IValue& number(std::size_t i) const { return call.arguments[i].constant; }
  at::Tensor result(std::size_t i = 0) const { return at_index(tensors, call.results[i].values.front()); }
};

using Kernel = std::function<void()>;

/// Returns LibTorch's CPU kernel for the call, which writes into its results; empty if there is none.
Kernel direct_kernel(const BoundCall& call);

/// Returns our kernel with the same bits; empty if there is none for this call or its shapes. Kernels whose bits depend
/// on the machine are compared with LibTorch's first.
Kernel own_kernel(const BoundCall& call);

}  // namespace danling::inline v0::tape
