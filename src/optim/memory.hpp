// Detection of tensors that share memory, which must not be changed in parallel or twice.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim::detail {

/// Indices of tensors that share memory with an earlier one, in ascending order. Includes interleaved ranges without a
/// common element. No device wait.
std::vector<std::size_t> find_overlapping(at::TensorList tensors);

/// Separates gradients that share memory, so that in-place changes apply once: autograd lets `a` and `b` share it for a
/// loss of `a.view(shape) + b.view(shape)`, and a program may assign a broadcast gradient. Also applies pending
/// negations and conjugations. Checks each gradient, copies only these and those that share memory.
void separate_gradients(const std::vector<at::Tensor>& params);
void separate_gradients(const std::vector<ParamGroup>& groups);

}  // namespace danling::inline v0::optim::detail
