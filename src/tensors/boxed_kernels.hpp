// Kernels of our own for every operator of LibTorch that takes tensors.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include <ATen/core/dispatch/Dispatcher.h>

namespace danling::inline v0::detail {

/// A kernel that finds its arguments on a stack, the last one on top, and leaves its results there.
class BoxedKernel : public c10::OperatorKernel {
 public:
  virtual void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const = 0;
};

/// Registers what `make` returns, under each of the keys. Once per key in a process: kernels are never taken back.
void register_for_all_operators(std::initializer_list<c10::DispatchKey> keys,
                                const std::function<std::unique_ptr<BoxedKernel>(const c10::OperatorHandle&)>& make);

}  // namespace danling::inline v0::detail
