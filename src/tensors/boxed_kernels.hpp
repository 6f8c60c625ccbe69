// Registers our own kernels for every LibTorch operator that takes tensors.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include <ATen/core/dispatch/Dispatcher.h>

namespace danling::inline v0::detail {

/// A kernel that pops its arguments from a stack (the last one on top) and pushes its results.
class BoxedKernel : public c10::OperatorKernel {
 public:
  virtual void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const = 0;
};

/// Registers the kernels that `make` returns under each key. Call it once per key in a process: kernels are never
/// unregistered.
void register_for_all_operators(std::initializer_list<c10::DispatchKey> keys,
                                const std::function<std::unique_ptr<BoxedKernel>(const c10::OperatorHandle&)>& make);

}  // namespace danling::inline v0::detail
