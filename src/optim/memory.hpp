// Tensors that share memory, which must not be changed side by side or twice.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim::detail {

/// The indices of tensors that lie in memory which a tensor before them has too, in ascending order. Tensors whose
/// ranges interleave without a common element count as well. No device wait.
std::vector<std::size_t> find_overlapping(at::TensorList tensors);

/// Gives each gradient memory of its own, so that changing them in place changes each once: autograd gives `a` and `b`
/// the same memory where a loss comes from `a.view(shape) + b.view(shape)`, and a program may assign a broadcast one.
/// Costs a look at each gradient; only those that share are copied.
void separate_gradients(const std::vector<at::Tensor>& params);
void separate_gradients(const std::vector<ParamGroup>& groups);

}  // namespace danling::inline v0::optim::detail
